"""A plain DDP loop whose weights have the same bits on 1, 2 and 4 replicas.

Run: torchrun --nproc-per-node 2 examples/exact_loop.py
"""

import gc
import hashlib
import os

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import lockstep
from lockstep.data import digits
from lockstep.models import mlp

SHARDS = 4


def main() -> None:
    """Train two epochs and print the SHA-256 of the weights."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    data = digits()
    torch.manual_seed(0)
    model = DistributedDataParallel(mlp((64, 32, 10)), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    exact = lockstep.ExactReduce.attach(model)
    batches = lockstep.GlobalBatches(
        data.train, global_batch=64, shards=SHARDS, seed=0, epochs=2, prepare=data.prepare
    )
    for batch in batches:
        for number, (inputs, targets, weight) in enumerate(batch.shards()):
            with exact.part(number, len(batch.sizes)):
                loss = cross_entropy(model(inputs), targets, reduction="sum") * weight
                exact.weigh(loss, batch.samples).backward()
        optimizer.step()
    content = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    if dist.get_rank() == 0:
        os.write(1, f"{hashlib.sha256(content).hexdigest()}\n".encode())
    del model, optimizer, exact
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
