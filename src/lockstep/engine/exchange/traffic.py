"""Count the messages and bytes that a step sends."""

# No `from __future__ import annotations` here: DDP checks the annotations of its hooks.
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.engine.exchange.hooks import all_reduce
from lockstep.engine.group import Group


class Traffic:
    """Messages and bytes that this process sent in the last step."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0

    def begin(self) -> None:
        """Start a step: nothing has been sent yet."""
        self.messages = self.bytes = 0

    def note(self, number: int) -> None:
        """Count a message of `number` bytes."""
        self.messages += 1
        self.bytes += number


def replicated(module: nn.Module, group: Group, traffic: Traffic) -> nn.Module:
    """Return a DDP model that counts what it gives to the all-reduce; one process needs no DDP.

    In a ring of W replicas each sends 2 (W - 1) / W of that.
    """
    module = module.to(group.device)
    if group.alone:
        return module

    def hook(_: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        traffic.note(bucket.buffer().nbytes)
        return all_reduce(bucket)

    model = DistributedDataParallel(
        module, device_ids=[group.device.index] if group.device.type == "cuda" else None
    )
    model.register_comm_hook(None, hook)
    return model
