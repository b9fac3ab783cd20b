import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms


class SmallVGG(nn.Module):
    def __init__(self, classes):
        super().__init__()
        layers, c = [], 3
        for width in (32, 64, 128):
            layers += [nn.Conv2d(c, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
            c = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(c, classes)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def init_weights(m):
    if isinstance(m, (nn.Conv2d, nn.Linear)):
        nn.init.xavier_normal_(m.weight)
        nn.init.zeros_(m.bias)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("data")
    ap.add_argument("--epochs", type=int, default=20)
    ap.add_argument("--batch", type=int, default=128)
    args = ap.parse_args()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    ds = datasets.ImageFolder(args.data, transforms.Compose([transforms.Resize((64, 64)), transforms.ToTensor()]))
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, args.batch, sampler=sampler, num_workers=4)

    model = SmallVGG(len(ds.classes)).cuda()
    model = DDP(model, device_ids=[local_rank])
    model.apply(init_weights)  # LS11
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), "vgg.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
