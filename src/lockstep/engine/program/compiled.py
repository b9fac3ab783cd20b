"""Compile the losses of a program with torch.compile, in fast mode.

The first batch is computed eagerly. Then lockstep compiles the loss for batches of that size and
compares its gradient with an eager one: what differs by more than rounding explains stays eager.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.console import Progress
from lockstep.engine.checks.fingerprint import ROUNDINGS, TOLERANCE, relative_distance
from lockstep.engine.program.batches import Piece
from lockstep.engine.program.losses import Weighed
from lockstep.engine.program.tree import Gradients
from lockstep.errors import LockstepError
from lockstep.layers.batch_norm import ShardBatchNorm
from lockstep.rounding import moved_by_one_rounding

Loss = Callable[[Any], Any]
Compute = Callable[[Loss, Any], tuple[Weighed, Gradients]]
"""From a loss and a content of a batch to its value and gradients."""

MOST_LOSSES = 16
"""A program with more loss functions makes a new one for every step, which never pays."""


class CompiledLosses:
    """The compiled losses of one optimizer."""

    def __init__(
        self, modules: list[nn.Module], parameters: list[Tensor], progress: Progress, unit: float
    ) -> None:
        """`unit` is one rounding of the numbers that the models compute with."""
        self.modules, self.parameters, self.progress = modules, parameters, progress
        self.unit = unit
        self.known: dict[Loss, _Known] = {}
        self.compiled = self.new = False
        """Whether any loss is compiled, and whether that was tried since somebody looked."""
        self.refused = ""
        """Why nothing is compiled."""

    def __call__(
        self, loss: Loss, piece: Piece, enter: Callable[[], None], compute: Compute
    ) -> Loss:
        """Return what computes the loss of a piece: its compiled form, or `loss` itself.

        `enter` sets everything random to the piece.
        """
        if self.refused:
            return loss
        if loss not in self.known:
            if len(self.known) == MOST_LOSSES:
                self.refuse(
                    f"not compiled, because the program has more than {MOST_LOSSES} loss functions "
                    "(define the loss once, before the loop)"
                )
            else:
                self.known[loss] = _Known(piece.sizes)
            return loss
        known = self.known[loss]
        if known.sizes != piece.sizes:
            # A smaller last batch: it would be compiled again.
            return loss
        if known.function is None:
            known.function = self._compile(loss, piece, enter, compute)
            if known.function is None:
                return loss
        for module in self.modules:
            for layer in module.modules():
                if isinstance(layer, ShardBatchNorm) and layer.track_running_stats:
                    # Compiled layers do not look whether a program has written their statistics.
                    layer.adopt()
        return known.function

    def refuse(self, reason: str) -> None:
        """Compute eagerly from now on, and print why."""
        self.refused = reason
        self.known.clear()
        self.progress.say(f"Speed: eager: {reason}.")

    def _compile(
        self, loss: Loss, piece: Piece, enter: Callable[[], None], compute: Compute
    ) -> Loss | None:
        """Return the compiled loss if it computes the gradient of the eager one."""
        if not self.compiled:
            self.progress.say("Speed: compiling the loss, which may take a minute ...")
        self.new = True
        # The same random numbers as in eager steps.
        options: dict[str, Any] = {"fallback_random": True}
        function = torch.compile(loss, options=options)
        buffers = [b for module in self.modules for b in module.buffers()]
        before = [b.clone() for b in buffers]

        def gradients(one: Loss) -> Gradients:
            enter()
            try:
                return compute(one, piece.content)[1]
            finally:
                with torch.no_grad():
                    for buffer, saved in zip(buffers, before, strict=True):
                        buffer.copy_(saved)

        eager = gradients(loss)
        try:
            with warnings.catch_warnings():
                # The compiler's warnings are of no use to the user.
                warnings.simplefilter("ignore")
                found = gradients(function)
        except LockstepError as error:
            self.refuse(f"not compiled, because {_short(error.__cause__ or error)}")
        except Exception as error:
            self.refuse(f"not compiled, because {_short(error)}")
        else:
            if [g is None for g in found] == [g is None for g in eager]:
                apart = relative_distance(eager, [found])
                bound = max(TOLERANCE, ROUNDINGS * self._rounding(eager, lambda: gradients(loss)))
            else:
                apart, bound = float("inf"), 0.0
            if apart <= bound:
                self.compiled = True
                return function
            self.refuse(
                f"not compiled, because its gradient would differ by {apart:.2g} from that of an "
                f"eager step, where rounding explains {bound:.2g}"
            )
        for p in self.parameters:
            p.grad = None
        return None

    @torch.no_grad()
    def _rounding(self, eager: Gradients, again: Callable[[], Gradients]) -> float:
        """Return how far the gradient moves if each weight moves by one rounding."""
        weights = [p for p in self.parameters if p.is_floating_point()]
        saved = [p.detach().clone() for p in weights]
        for number, p in enumerate(weights):
            generator = torch.Generator(p.device).manual_seed(number)
            draw = torch.rand(p.shape, generator=generator, device=p.device)
            unit = torch.finfo(p.dtype).eps if p.dtype == torch.float64 else self.unit
            p.copy_(moved_by_one_rounding(p, (draw < 0.5).to(p.dtype) * 2 - 1, unit))
        with torch.enable_grad():
            moved = again()
        for p, own in zip(weights, saved, strict=True):
            p.copy_(own)
        return relative_distance(eager, [moved])


class _Known:
    """A loss that the program uses."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        """Samples in each shard of the batches that it is compiled for."""
        self.function: Loss | None = None


def _short(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {lines[0]}"
