"""A probe beside the doctor's: which images the model learned from, and that weights follow steps.

It is installed in every process of a program that is graded. Notes are made of what goes through
the model, not of what a loader gave: a batch may be sliced by hand, or left aside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from lockstep.assess.image_marks import marks
from lockstep.probes.hooks.optimizers import parameters_of
from lockstep.probes.recorder import Recorder

MOST = 64
"""Notes that are kept on the device. To fetch each at once would have a GPU wait for it."""
UNTRAINED = "untrained.pt"
"""The weights before the first step, as rank 0 has them."""
_save = torch.save  # as it is before the doctor's probes are set


def install(recorder: Recorder) -> None:
    """Set the probe; not in the process that repeats the first step for the doctor."""
    if recorder.settings.oracle is not None:
        return
    witness = Witness(recorder)
    register_module_forward_pre_hook(witness.enter)
    register_module_forward_hook(witness.leave, always_call=True)
    register_optimizer_step_pre_hook(witness.begin)
    register_optimizer_step_post_hook(witness.end)
    recorder.on_end.append(witness.tell)


class Witness:
    """What one process did."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.depth = self.steps = 0
        self.fed: list[tuple[dict[str, Any], Tensor]] = []
        self.sums: list[tuple[int, str, Tensor]] = []
        self.model: nn.Module | None = None

    def enter(self, module: nn.Module, args: Any) -> None:
        """A module is called; the outermost is the model."""
        self.depth += 1
        if self.depth > 1 or self.recorder.worker or not args:
            return
        images = args[0]
        if isinstance(images, Tensor) and images.dim() == 4 and images.is_floating_point():
            self.model = module
            self.fed.append(({"step": self.steps, "learned": False}, marks(images)))

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        """It is through; whether it learns from the batch is known when a gradient comes back."""
        self.depth -= 1
        if self.depth or not self.fed or module is not self.model:
            return
        facts = self.fed[-1][0]
        if isinstance(output, Tensor) and output.requires_grad:

            def learned(_: Tensor) -> None:
                facts["learned"] = True

            output.register_hook(learned)
        elif len(self.fed) >= MOST:
            self.tell()

    def begin(self, optimizer: Optimizer, *_: Any) -> None:
        """Before a step."""
        parameters = parameters_of(optimizer)
        if not self.steps and not self.recorder.rank and self.model is not None:
            _save(_plain(self.model).state_dict(), Path(self.recorder.settings.folder, UNTRAINED))
        self.sums.append((self.steps, "before", weight_sum(parameters)))

    def end(self, optimizer: Optimizer, *_: Any) -> None:
        """After a step."""
        self.steps += 1
        self.sums.append((self.steps, "after", weight_sum(parameters_of(optimizer))))
        if len(self.sums) >= MOST:
            self.tell()

    def tell(self) -> None:
        """Note what was seen."""
        for facts, rows in self.fed:
            self.recorder.note("fed", rows=rows.cpu().numpy().tobytes().hex(), **facts)
        for step, when, value in self.sums:
            self.recorder.note("weights", step=step, when=when, sum=int(value))
        self.fed, self.sums = [], []


def _plain(model: nn.Module) -> nn.Module:
    """The model inside its wrappers: DDP's, a compiler's."""
    for name in ("module", "_orig_mod"):
        if isinstance(inner := getattr(model, name, None), nn.Module):
            return _plain(inner)
    return model


def weight_sum(parameters: list[Tensor]) -> Tensor:
    """A number that follows from the bits of all parameters, in any order."""
    bits = [p.detach().float().contiguous().view(torch.int32) for p in parameters]
    return torch.stack([b.sum(dtype=torch.int64) for b in bits]).sum()
