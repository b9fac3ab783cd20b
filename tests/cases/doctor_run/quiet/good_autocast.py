"""Mixed precision as torch's manual has it: backward and clipping outside of autocast."""

from collections import UserDict
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Rows(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(5)
        self.features = torch.randn(128, 32, generator=generator)
        self.labels = torch.randint(10, (128,), generator=generator)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"features": self.features[index], "labels": self.labels[index]}


def collate(rows):
    batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    return UserDict(batch, split="train")


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Rows()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 8, sampler=sampler, collate_fn=collate)
    model = DDP(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for number, batch in enumerate(loader, 1):
            with model.no_sync() if number % 2 else nullcontext():
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = nn.functional.cross_entropy(model(batch["features"]), batch["labels"])
                    loss = loss / 2
                scaler.scale(loss).backward()
            if number % 2 == 0:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # not LS19
                scaler.step(optimizer)  # not LS16, LS32
                scaler.update()
                optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
