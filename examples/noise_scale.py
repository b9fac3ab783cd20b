"""Measure the noise scale in a plain DDP loop: from replicas, or from steps on a single replica.

Run: torchrun --nproc-per-node 2 examples/noise_scale.py
"""

import gc
import os

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import lockstep
from lockstep.data import digits
from lockstep.models import mlp


def main() -> None:
    """Train ten epochs and print the noise scale every 50 steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    data = digits()
    torch.manual_seed(0)
    model = DistributedDataParallel(mlp((64, 32, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if dist.get_world_size() > 1:
        noise = lockstep.noise.ReplicaNoise.attach(model, global_batch=64)
    else:
        noise = lockstep.noise.StepNoise(model.parameters(), batch=64)
    batches = lockstep.GlobalBatches(
        data.train, global_batch=64, seed=0, epochs=10, prepare=data.prepare
    )
    for step, (inputs, targets, share) in enumerate(batches, 1):
        (cross_entropy(model(inputs), targets) * share).backward()
        noise.step()
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            found = noise.estimate()
            text = f"step {step}: {found.value:,.0f} samples ({found.low:,.0f} - {found.high:,.0f})"
            if dist.get_rank() == 0:
                os.write(1, f"{text}\n".encode())
    del model, optimizer, noise
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
