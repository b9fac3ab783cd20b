"""What a step sends, counted where it is handed over to be sent."""

# No `from __future__ import annotations` here: DDP checks the annotations of its hooks.
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from lockstep.engine.timeline import all_reduce


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


def count_gradients(model: DistributedDataParallel, traffic: Traffic) -> None:
    """Count what DDP gives to its all-reduce, which stays as it is.

    A ring of W replicas sends 2 (W - 1) / W of that from each of them.
    """

    def hook(_: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        traffic.note(bucket.buffer().nbytes)
        return all_reduce(bucket)

    model.register_comm_hook(None, hook)
