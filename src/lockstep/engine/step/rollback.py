"""Taking a step on trial: what it changes, how to take it back, and what rounding would change."""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from lockstep.engine.replica import Replica
from lockstep.engine.step.metrics import Meter


class State:
    """What a step changes, to take it back."""

    def __init__(self, replica: Replica, meter: Meter) -> None:
        module = replica.module
        self.weights: list[Tensor] = [p for p in module.parameters() if p.requires_grad]
        self.others = [*module.buffers(), *replica.update.state(), meter.at]
        self.saved = [t.detach().clone() for t in self.weights]
        self.saved_others = [t.detach().clone() for t in self.others]
        # An optimizer may count, and make its state anew; PowerSGD remembers what it did not send.
        self.ways_back = [replica.update.bookmark()]
        if replica.powersgd is not None:
            self.ways_back.append(replica.powersgd.bookmark())

    @torch.no_grad()
    def restore(self) -> None:
        """As it was."""
        for tensor, saved in zip(
            [*self.weights, *self.others], [*self.saved, *self.saved_others], strict=True
        ):
            tensor.copy_(saved)
        for go_back in self.ways_back:
            go_back()

    def _nudged(self, unit: float) -> Generator[Tensor, None, None]:
        """Every weight as it was, moved by one rounding up or down."""
        for number, saved in enumerate(self.saved):
            generator = torch.Generator(saved.device).manual_seed(number)
            draw = torch.rand(saved.shape, generator=generator, device=saved.device)
            yield saved * (1 + unit * ((draw < 0.5).to(saved.dtype) * 2 - 1))

    @torch.no_grad()
    def nudge(self, unit: float) -> None:
        """Move every weight by one rounding."""
        for tensor, start in zip(self.weights, self._nudged(unit), strict=True):
            tensor.copy_(start)

    @torch.no_grad()
    def weights_moved(self, unit: float = 0.0) -> list[Tensor]:
        """How far each weight has come since then, or since it was nudged."""
        starts = self._nudged(unit) if unit else self.saved
        return [t - start for t, start in zip(self.weights, starts, strict=True)]

    def rounding(self) -> float:
        """How far apart steps may end that agree until their weights are rounded."""
        return length([saved * torch.finfo(saved.dtype).eps for saved in self.saved])


def unit_of(replica: Replica) -> float:
    """One rounding of the numbers that the model computes with."""
    if any(p.dtype == torch.float64 for p in replica.module.parameters()):
        return 2.0**-52
    return {"fp32": 2.0**-23, "tf32": 2.0**-10, "bf16": 2.0**-8}[replica.recipe.precision]


def length(tensors: list[Tensor]) -> float:
    """The norm of all values together."""
    return float(torch.stack([t.double().square().sum() for t in tensors]).sum().sqrt())


def distance(first: list[Tensor], second: list[Tensor]) -> float:
    """The norm of the difference."""
    return length([a - b for a, b in zip(first, second, strict=True)])
