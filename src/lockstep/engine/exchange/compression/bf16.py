"""bfloat16: half the bytes of float32."""

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.engine.exchange.compression.choice import Compression
from lockstep.engine.exchange.reduce import tree_reduce


def bf16(parameters: list[Tensor], buffer: Tensor, group: dist.ProcessGroup | None) -> None:
    """Average `buffer` over the replicas: bfloat16 travels, sums are made in float32.

    Every replica rounds its gradient and the owner rounds the sum, each by at most 2**-8 of what is
    rounded: the mean is off by less than 2**-7 * 1.01 of the mean of the absolute gradients.
    """
    tree_reduce(buffer, torch.bfloat16, group)
    buffer.div_(dist.get_world_size())


COMPRESSION = Compression(
    name="bf16", sent_bytes=lambda p: p.numel() * 2, make=lambda whole: (bf16, None)
)
