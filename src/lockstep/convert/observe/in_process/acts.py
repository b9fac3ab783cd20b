"""Note the order of backward, clipping and step, and what is trained without a forward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad

from lockstep.convert.observe.in_process.forwards import Forwards
from lockstep.probes.hooks.optimizers import parameters_of
from lockstep.probes.patching import replaces
from lockstep.probes.recorder import Recorder
from lockstep.probes.spans import Span, here

WINDOWS = 12
"""How many steps to note."""


class Acts:
    """The order of backward, clipping and step, and what is trained without a forward pass."""

    def __init__(self, recorder: Recorder, forwards: Forwards) -> None:
        self.recorder, self.forwards = recorder, forwards
        self.acts: list[tuple[str, Span]] = []
        self.windows = 0
        recorder.on_backward.append(lambda: self._did("backward"))
        recorder.on_step.append(self._steps)

        @replaces("clip_grad_norm_ clip_grad_norm clip_grad_value_", clip_grad, torch.nn.utils)
        def clipped(clip: Any, *args: Any, **kwargs: Any) -> Any:
            self._did("clip")
            return clip(*args, **kwargs)

        @replaces("unscale_", torch.amp.GradScaler)
        def unscaled(unscale: Any, *args: Any, **kwargs: Any) -> Any:
            self._did("unscale")
            return unscale(*args, **kwargs)

        @replaces("grad", torch.autograd)
        def differentiated(grad: Any, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            leaves = [inputs] if isinstance(inputs, Tensor) else list(inputs)
            inputs = leaves if not isinstance(inputs, Tensor) else inputs
            if any(id(leaf) in forwards.covered for leaf in leaves if isinstance(leaf, Tensor)):
                recorder.note("grad_of_weights", span=here())
            return grad(outputs, inputs, *args, **kwargs)

    def _did(self, what: str) -> None:
        if self.windows < WINDOWS:
            self.acts.append((what, here()))

    def _steps(self, optimizer: Any) -> None:
        mine = parameters_of(optimizer)
        loose = sum(
            p.grad is not None and id(p) not in self.forwards.covered
            for p in mine
            if isinstance(p, Tensor)
        )
        if loose:
            self.recorder.note("loose", parameters=loose)
        if self.windows < WINDOWS:
            self.windows += 1
            self._did("step")
            self.recorder.note("acts", acts=self.acts)
            self.acts = []
