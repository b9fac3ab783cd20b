"""Iteration based training, the batches come from a generator without end."""
import argparse
import itertools
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms import CenterCrop, Compose, Resize, ToTensor
from torchvision.utils import save_image


def forever(loader):
    for turn in itertools.count():
        loader.sampler.set_epoch(turn)
        yield from loader


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("images")
    ap.add_argument("--iterations", type=int, default=100_000)
    ap.add_argument("--every", type=int, default=1000)
    args = ap.parse_args()
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    ds = ImageFolder(args.images, Compose([Resize(64), CenterCrop(64), ToTensor()]))
    loader = DataLoader(ds, 64, sampler=DistributedSampler(ds), drop_last=True, num_workers=4)
    net = nn.Sequential(nn.Conv2d(3, 64, 4, 4), nn.GELU(), nn.ConvTranspose2d(64, 3, 4, 4)).cuda()
    model = DistributedDataParallel(net, device_ids=[gpu])
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    batches = forever(loader)
    for it in range(args.iterations):
        x, _ = next(batches)
        x = x.cuda(non_blocking=True)
        out = model(x)
        loss = nn.functional.mse_loss(out, x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if it % args.every or dist.get_rank():
            continue
        print(it, loss.item())
        save_image(out[:8].clamp(0, 1), f"it{it:06d}.png")
        torch.save(net.state_dict(), "patches.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
