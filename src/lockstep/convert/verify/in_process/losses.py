"""Note the losses: the values that backward is called on."""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
from torch import Tensor

from lockstep.convert.verify.in_process.training_state import Now


def install(now: Now) -> None:
    """Note the loss of every backward."""
    backward: Any = torch.autograd.backward

    @wraps(backward)
    def went_backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        value = sum(float(t.detach().double().sum()) for t in roots)
        now.recorder.note("loss", value=value, step=now.most_steps, number=now.backwards)
        now.backwards += 1
        now.evaluated = False
        backward(tensors, *args, **kwargs)

    setattr(torch.autograd, "backward", went_backward)  # noqa: B010
