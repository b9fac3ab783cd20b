"""NumPy draws the crops; torch seeds its global generator in every worker."""

import argparse
import os

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Patches(Dataset):
    def __init__(self, paths, size=64):
        self.paths = paths
        self.size = size

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        image = np.asarray(Image.open(self.paths[index]).convert("RGB"))
        top = np.random.randint(image.shape[0] - self.size)
        left = np.random.randint(image.shape[1] - self.size)
        patch = image[top : top + self.size, left : left + self.size]
        return torch.from_numpy(patch.copy()).permute(2, 0, 1).float() / 255


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", default="images.txt")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=30)
    args = parser.parse_args()

    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    with open(args.list) as file:
        data = Patches(file.read().split())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler, num_workers=args.workers)
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 3, 3, padding=1))
    model = DDP(model.to(device), device_ids=[device.index])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for clean in loader:
            clean = clean.to(device)
            loss = nn.functional.l1_loss(model(clean), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), "denoise.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
