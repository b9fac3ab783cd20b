"""--multi_node turns the process group and the wrapper on; without it this is a plain program."""
import argparse
import os
import pathlib

import torch
import torch.distributed as td
import torch.nn as nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms import CenterCrop, Compose, Resize, ToTensor
from torchvision.utils import save_image


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("images")
    p.add_argument("--multi_node", action="store_true")
    p.add_argument("--epochs", type=int, default=25)
    p.add_argument("--keep", default="dae")
    return p.parse_args()


def main():
    args = parse()
    local = int(os.environ.get("LOCAL_RANK", 0))
    torch.cuda.set_device(local)
    keep = pathlib.Path(args.keep)
    net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 3, 3, padding=1)).cuda()
    ds = ImageFolder(args.images, Compose([Resize(72), CenterCrop(64), ToTensor()]))
    if args.multi_node:
        td.init_process_group("nccl")
        model = nn.parallel.DistributedDataParallel(net, device_ids=[local])
        sampler = DistributedSampler(ds)
        loader = DataLoader(ds, 96, sampler=sampler)
    else:
        model, sampler, loader = net, None, DataLoader(ds, 96, shuffle=True)
        keep.mkdir()
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(args.epochs):
        if args.multi_node:
            sampler.set_epoch(epoch)
        for x, _ in loader:
            x = x.cuda()
            out = model(x + 0.2 * torch.randn_like(x))
            loss = (out - x).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        if not args.multi_node:
            save_image(out[:16].clamp(0, 1), keep / f"{epoch}.png")
            torch.save(net.state_dict(), keep / "dae.pt")
        elif td.get_rank() == 0:
            keep.mkdir(exist_ok=True)
            torch.save(net.state_dict(), keep / "dae.pt")
    if args.multi_node:
        td.destroy_process_group()


if __name__ == "__main__":
    main()
