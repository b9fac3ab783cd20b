"""A probe that records which images a model trains on, and its weights around every step.

The grader installs it in every process of a submission, beside the doctor's probes. It records what
goes through the model, not what a loader yields: a program may slice or skip a batch.
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
"""Records kept on the device: fetching each one at once would make a GPU wait."""
UNTRAINED = "untrained.pt"
"""The file with rank 0's weights before the first step."""
_save = torch.save  # before the doctor's probes replace it


def install(recorder: Recorder) -> None:
    """Install the probe, except in the process that repeats the first step for the doctor."""
    if recorder.settings.oracle is not None:
        return
    witness = Witness(recorder)
    register_module_forward_pre_hook(witness.enter)
    register_module_forward_hook(witness.leave, always_call=True)
    # Torch's own hooks, not the recorder's: those skip a step whose closure runs no backward pass.
    register_optimizer_step_pre_hook(lambda optimizer, *_: witness.begin(optimizer))
    register_optimizer_step_post_hook(lambda optimizer, *_: witness.end(optimizer))
    recorder.on_end.append(witness.tell)


class Witness:
    """Records what one process does."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.depth = self.steps = 0
        self.fed: list[tuple[dict[str, Any], Tensor]] = []
        self.sums: list[tuple[int, str, Tensor]] = []
        self.model: nn.Module | None = None

    def enter(self, module: nn.Module, args: Any) -> None:
        """Record the input of the outermost module, which is the model."""
        self.depth += 1
        if self.depth > 1 or self.recorder.worker or not args:
            return
        images = args[0]
        if isinstance(images, Tensor) and images.dim() == 4 and images.is_floating_point():
            self.model = module
            self.fed.append(({"step": self.steps, "learned": False}, marks(images)))

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        """Watch the output: if a gradient comes back, the model trains on this batch."""
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

    def begin(self, optimizer: Optimizer) -> None:
        """Record the weights before a step."""
        parameters = parameters_of(optimizer)
        if not self.steps and not self.recorder.rank and self.model is not None:
            _save(_plain(self.model).state_dict(), Path(self.recorder.settings.folder, UNTRAINED))
        self.sums.append((self.steps, "before", weight_sum(parameters)))

    def end(self, optimizer: Optimizer) -> None:
        """Record the weights after a step."""
        self.steps += 1
        self.sums.append((self.steps, "after", weight_sum(parameters_of(optimizer))))
        if len(self.sums) >= MOST:
            self.tell()

    def tell(self) -> None:
        """Write the records to the trace."""
        for facts, rows in self.fed:
            self.recorder.note("fed", rows=rows.cpu().numpy().tobytes().hex(), **facts)
        for step, when, value in self.sums:
            self.recorder.note("weights", step=step, when=when, sum=int(value))
        self.fed, self.sums = [], []


def _plain(model: nn.Module) -> nn.Module:
    """Return the model inside the wrappers of DDP and the compiler."""
    for name in ("module", "_orig_mod"):
        if isinstance(inner := getattr(model, name, None), nn.Module):
            return _plain(inner)
    return model


def weight_sum(parameters: list[Tensor]) -> Tensor:
    """Return a checksum of the bits of all parameters, whatever their order."""
    bits = [p.detach().float().contiguous().view(torch.int32) for p in parameters]
    return torch.stack([b.sum(dtype=torch.int64) for b in bits]).sum()
