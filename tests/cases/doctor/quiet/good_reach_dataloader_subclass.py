import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class EpochLoader(DataLoader):
    """Brings its own sampler and counts the epochs by itself."""

    def __init__(self, dataset, batch_size, **more):
        super().__init__(dataset, batch_size=batch_size, sampler=DistributedSampler(dataset), **more)
        self._passes = 0

    def __iter__(self):
        self.sampler.set_epoch(self._passes)
        self._passes += 1
        return super().__iter__()


class CudaLoader(EpochLoader):
    def __iter__(self):
        for batch in super().__iter__():
            yield [t.cuda(non_blocking=True) for t in batch]


@dataclass
class Options:
    file: str = "pulses.pt"
    epochs: int = 60
    batch: int = 150


def main(o=Options()):
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    x, y = torch.load(o.file, map_location="cpu")
    loader = CudaLoader(TensorDataset(x, y), o.batch, pin_memory=True, drop_last=True)
    net = nn.Sequential(nn.Linear(x.size(1), 120), nn.GELU(), nn.Linear(120, 4)).cuda()
    model = DDP(net, device_ids=[gpu])
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 2e-3, total_steps=o.epochs * len(loader))
    for epoch in range(o.epochs):
        for a, b in loader:
            loss = nn.functional.cross_entropy(model(a), b)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
        if dist.get_rank() == 0:
            print(epoch, loss.item())
    if dist.get_rank() == 0:
        torch.save(net.state_dict(), "pulses_net.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
