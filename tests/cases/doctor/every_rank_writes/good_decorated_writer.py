"""Denoiser on image crops.  Anything touching the disk is behind @only_rank_zero or a NullWriter."""
import functools
import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from torch.utils.tensorboard import SummaryWriter
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, RandomCrop, ToTensor
from torchvision.utils import save_image


def only_rank_zero(fn):
    @functools.wraps(fn)
    def inner(*a, **k):
        if dist.get_rank() == 0:
            return fn(*a, **k)
        return None
    return inner


class NullWriter:
    def add_scalar(self, *_, **__):
        pass

    def close(self):
        pass


@only_rank_zero
def write_summary(path, **values):
    with open(path, "w") as f:
        json.dump(values, f, indent=2)


@only_rank_zero
def picture(path, batch):
    save_image(batch.clamp(0, 1), path)


@only_rank_zero
def keep(path, ddp_model):
    torch.save(ddp_model.module.state_dict(), path)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    writer = SummaryWriter("tb/denoise") if dist.get_rank() == 0 else NullWriter()
    ds = ImageFolder("/data/crops", Compose([RandomCrop(96), ToTensor()]))
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, 64, sampler=sampler, num_workers=4, drop_last=True)
    net = nn.Sequential(nn.Conv2d(3, 48, 3, padding=1), nn.ReLU(), nn.Conv2d(48, 3, 3, padding=1)).to(local)
    model = DDP(net, device_ids=[local])
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(15):
        sampler.set_epoch(epoch)
        for it, (clean, _) in enumerate(loader):
            clean = clean.to(local)
            out = model(clean + 0.1 * torch.randn_like(clean))
            loss = nn.functional.mse_loss(out, clean)
            opt.zero_grad()
            loss.backward()
            opt.step()
            writer.add_scalar("mse", loss.item(), epoch * len(loader) + it)
        picture(f"denoised_{epoch}.png", out.detach())
        write_summary("summary.json", epoch=epoch, mse=loss.item())
        keep("denoiser.pt", model)
    writer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
