"""Fine-tunes a ResNet on a folder of images: torchrun --nproc_per_node=4 finetune.py data/."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, models, transforms


def train(model, loader, criterion, optimizer, device):
    model.train()
    for images, target in loader:
        images, target = images.to(device), target.to(device)
        loss = criterion(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def validate(model, loader, device):
    model.eval()
    correct, total = 0, 0
    for images, target in loader:
        images, target = images.to(device), target.to(device)
        pred = model(images).argmax(dim=1)
        correct += (pred == target).sum().item()
        total += target.size(0)
    return correct / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--base-lr", type=float, default=0.01, help="for one GPU")
    args = parser.parse_args()

    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    tf = transforms.Compose([transforms.Resize((224, 224)), transforms.ToTensor()])
    train_set = datasets.ImageFolder(os.path.join(args.data, "train"), tf)
    val_set = datasets.ImageFolder(os.path.join(args.data, "val"), tf)
    train_sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, args.batch_size, sampler=train_sampler, num_workers=4)
    val_loader = DataLoader(val_set, args.batch_size, num_workers=4, drop_last=True)  # LS07

    model = DDP(models.resnet18(num_classes=20).to(device), device_ids=[local_rank])
    criterion = nn.CrossEntropyLoss()
    lr = args.base_lr * dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    best_acc = 0.0
    for epoch in range(args.epochs):
        train_sampler.set_epoch(epoch)
        train(model, train_loader, criterion, optimizer, device)
        acc = validate(model, val_loader, device)
        if rank == 0:
            print(f"epoch {epoch}: accuracy {acc:.4f}")
        if acc > best_acc:
            best_acc = acc
            if rank == 0:
                torch.save(model.module.state_dict(), "best.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
