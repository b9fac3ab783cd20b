"""Rank 0 alone tests, on all data, while the others wait."""

import logging
import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, random_split
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms
from torchvision.datasets import FashionMNIST

logger = logging.getLogger(__name__)


def get_rank():
    if not dist.is_available() or not dist.is_initialized():
        return 0
    return dist.get_rank()


def is_main_process():
    return get_rank() == 0


def save_on_master(*args, **kwargs):
    if is_main_process():
        torch.save(*args, **kwargs)


class MLP(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(784, hidden), nn.LayerNorm(hidden), nn.ReLU(), nn.Linear(hidden, 10)
        )

    def forward(self, x):
        return self.net(x)


def build_datasets(root):
    full = FashionMNIST(root, train=True, transform=transforms.ToTensor())
    # The same split on all ranks.
    return random_split(full, [55000, 5000], generator=torch.Generator().manual_seed(0))


@torch.inference_mode()
def accuracy(model, loader, device):
    was_training = model.training
    model.eval()
    hits = total = 0
    for x, y in loader:
        hits += (model(x.to(device)).argmax(1).cpu() == y).sum().item()
        total += len(y)
    model.train(was_training)
    return hits / total


def main():
    logging.basicConfig(level=logging.INFO if os.environ["RANK"] == "0" else logging.WARNING)
    dist.init_process_group("nccl", timeout=timedelta(minutes=60))
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    train_set, val_set = build_datasets("/data/fashion")
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=128, sampler=sampler, num_workers=4)
    val_loader = None
    if is_main_process():
        val_loader = DataLoader(val_set, batch_size=512, num_workers=4)

    ddp_model = DistributedDataParallel(MLP().to(device), device_ids=[local_rank])
    # Adam: the square root of the number of replicas.
    lr = 1e-3 * dist.get_world_size() ** 0.5
    optimizer = torch.optim.Adam(ddp_model.parameters(), lr=lr)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            loss = nn.functional.cross_entropy(ddp_model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if is_main_process():
            score = accuracy(ddp_model.module, val_loader, device)
            logger.info("epoch %d: accuracy %.4f", epoch, score)
        dist.barrier()
        save_on_master(ddp_model.module.state_dict(), "fashion.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
