"""A plain DDP loop that sees the same global batches on any number of replicas.

Run: torchrun --nproc-per-node 2 examples/plain_loop.py
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
    """Train two epochs and print the test accuracy."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    data = digits()
    torch.manual_seed(0)
    model = DistributedDataParallel(mlp((64, 32, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    # This needs no DistributedSampler and no set_epoch, and neither pads nor drops samples.
    batches = lockstep.GlobalBatches(
        data.train, global_batch=64, seed=0, epochs=2, prepare=data.prepare
    )
    for inputs, targets, share in batches:
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs), targets) * share
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        images = data.prepare(data.test.inputs)
        right = (model.module(images).argmax(1) == data.test.targets).sum().item()
        os.write(1, f"test accuracy {right / len(data.test):.4f}\n".encode())
    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
