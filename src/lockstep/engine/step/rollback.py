"""Take a step back, and measure how far it and its rounding errors have moved the weights."""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from lockstep.engine.recipe.recipe import Precision
from lockstep.engine.replica import Replica
from lockstep.engine.step.metrics import Meter
from lockstep.rounding import moved_by_one_rounding


class Rollback:
    """The state before a step, and the way back to it."""

    def __init__(self, replica: Replica, meter: Meter) -> None:
        module, update, memory = replica.model.module, replica.update, replica.exchange.memory
        self.weights: list[Tensor] = [p for p in module.parameters() if p.requires_grad]
        self.others = [*module.buffers(), *update.state(), meter.at]
        self.saved = [t.detach().clone() for t in self.weights]
        self.saved_others = [t.detach().clone() for t in self.others]
        # An optimizer may count, and replace its state; PowerSGD remembers what it did not send.
        self.ways_back = [update.bookmark()]
        if memory is not None:
            self.ways_back.append(memory.bookmark())
        double = any(p.dtype == torch.float64 for p in module.parameters())
        self.unit = 2.0**-52 if double else Precision(replica.recipe.precision).rounding
        """One rounding of the numbers that the model computes with."""

    @torch.no_grad()
    def restore(self) -> None:
        """Go back to the state before the step."""
        for tensor, saved in zip(
            [*self.weights, *self.others], [*self.saved, *self.saved_others], strict=True
        ):
            tensor.copy_(saved)
        for go_back in self.ways_back:
            go_back()

    def _nudged(self) -> Generator[Tensor, None, None]:
        """Yield every weight as it was, moved up or down by one rounding."""
        for number, saved in enumerate(self.saved):
            generator = torch.Generator(saved.device).manual_seed(number)
            draw = torch.rand(saved.shape, generator=generator, device=saved.device)
            signs = (draw < 0.5).to(saved.dtype) * 2 - 1
            yield moved_by_one_rounding(saved, signs, self.unit)

    @torch.no_grad()
    def nudge(self) -> None:
        """Move every weight by one rounding."""
        for tensor, start in zip(self.weights, self._nudged(), strict=True):
            tensor.copy_(start)

    @torch.no_grad()
    def weights_moved(self, *, nudged: bool = False) -> list[Tensor]:
        """Return how far each weight has come from where it was, or from where it was nudged."""
        starts = self._nudged() if nudged else self.saved
        return [t - start for t, start in zip(self.weights, starts, strict=True)]

    def rounding(self) -> float:
        """Return how far apart two steps may end that differ only in rounding their weights."""
        return length([saved * torch.finfo(saved.dtype).eps for saved in self.saved])


def length(tensors: list[Tensor]) -> float:
    """Return the norm of all values together."""
    return float(torch.stack([t.double().square().sum() for t in tensors]).sum().sqrt())


def distance(first: list[Tensor], second: list[Tensor]) -> float:
    """Return the norm of the difference."""
    return length([a - b for a, b in zip(first, second, strict=True)])
