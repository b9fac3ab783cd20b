"""What a step sends, counted where it is handed over to be sent."""

# No `from __future__ import annotations` here: DDP checks the annotations of its hooks.
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.engine.group import Group
from lockstep.engine.step.timeline import all_reduce


class Traffic:
    """Messages and bytes of this process in the last step."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0

    def begin(self) -> None:
        """A step starts."""
        self.messages = self.bytes = 0

    def note(self, number: int) -> None:
        """A message of so many bytes."""
        self.messages += 1
        self.bytes += number


def replicated(module: nn.Module, group: Group, traffic: Traffic) -> nn.Module:
    """A DDP model that counts what it gives to the all-reduce; a process alone keeps its own.

    A ring of W replicas sends 2 (W - 1) / W of that from each of them.
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
