"""Fine-tuning by torchrun: the last layer is replaced first, and then the model is wrapped."""

import argparse
import os

import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()

    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    data = torchvision.datasets.ImageFolder(args.data, torchvision.transforms.ToTensor())
    model = torchvision.models.vit_b_16(weights="DEFAULT").cuda()
    features = model.heads.head.in_features
    model.heads.head = nn.Linear(features, len(data.classes), device="cuda")
    for parameter in model.encoder.parameters():
        parameter.requires_grad = False
    model = DDP(model, device_ids=[local_rank])

    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler, num_workers=8, pin_memory=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * dist.get_world_size())
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), "tuned.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
