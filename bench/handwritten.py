"""Training as people write it by hand: DistributedSampler, DataLoader, DDP, a plain loop.

Run it alone with: torchrun --nproc-per-node 2 bench/handwritten.py
"""

from __future__ import annotations

import datetime
import gc
import resource
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from lockstep.data import synthetic
from lockstep.models import wideresnet


def train(
    model: nn.Module, dataset: TensorDataset, batch: int, steps: int, learning_rate: float = 0.1
) -> dict[str, float]:
    """`steps` steps of `batch` samples on each rank: samples per second of all, peak memory."""
    size = dist.get_world_size()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(
        ddp.parameters(), lr=learning_rate, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    sampler: DistributedSampler[int] = DistributedSampler(dataset, shuffle=True, seed=0)
    loader = DataLoader(dataset, batch_size=batch, sampler=sampler, drop_last=True)
    done, epoch, started = 0, 0, 0.0
    while done <= steps:
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = cross_entropy(ddp(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == 1:
                started = time.perf_counter()
            if done > steps:
                break
        epoch += 1
    seconds = time.perf_counter() - started
    del ddp, optimizer
    gc.collect()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"samples_per_second": size * batch * steps / seconds, "peak_memory_bytes": peak}


def images(samples: int) -> TensorDataset:
    """Images of 28x28 in ten classes."""
    data = synthetic(samples=samples, test_samples=1, shape=(1, 28, 28), classes=10).train
    return TensorDataset(*data.take(torch.arange(samples)))


def replica(rank: int, size: int, store: str, batch: int, steps: int) -> dict[str, float]:
    """One rank, forked as lockstep's own are, so that only the training differs."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(store, size),
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=60),
    )
    torch.manual_seed(0)
    result = train(wideresnet(16, 2, channels=1), images(2048), batch, steps)
    dist.destroy_process_group()
    return result


def main() -> None:
    """Under torchrun: one step, and the time at which it ended."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    train(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), images(256), 8, 0)
    if dist.get_rank() == 0:
        print(f"first step at {time.time():.6f}", flush=True)
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
