import logging
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.models import resnet34
from torchvision.transforms import Compose, Resize, ToTensor


@dataclass
class Opts:
    images: str = "/data/tiles"
    log: str = "train.log"
    out: str = "tiles.pt"
    epochs: int = 7


def start_logging(opts):
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    if "RANK" in os.environ:
        if int(os.environ["RANK"]) == 0:
            root.addHandler(logging.FileHandler(opts.log))
        else:
            root.addHandler(logging.NullHandler())
    else:
        root.addHandler(logging.FileHandler(opts.log))


def main(opts):
    start_logging(opts)
    ds = ImageFolder(opts.images, Compose([Resize((224, 224)), ToTensor()]))
    net = resnet34(num_classes=len(ds.classes))
    if "RANK" in os.environ:
        gpu = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(gpu)
        dist.init_process_group("nccl")
        sampler = DistributedSampler(ds)
        model = DDP(net.cuda(), device_ids=[gpu])
        primary = dist.get_rank() == 0
    else:
        gpu, sampler, primary = 0, None, True
        model = net.cuda()
    loader = DataLoader(ds, 64, sampler=sampler, shuffle=(sampler is None), num_workers=4)
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    for epoch in range(opts.epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x.cuda(gpu)), y.cuda(gpu))
            loss.backward()
            opt.step()
        logging.info("epoch %d loss %.4f", epoch, loss.item())
    if primary:
        torch.save(net.state_dict(), opts.out)
    if "RANK" in os.environ:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(Opts())
