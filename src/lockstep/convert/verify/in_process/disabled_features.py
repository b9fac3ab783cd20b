"""Switch off features that do not change results but hide where random numbers are drawn."""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
from torch import nn

from lockstep.convert.verify.in_process.training_state import Now


def install(now: Now) -> None:
    """Replace torch.compile, torch.jit.script and the dropout of recurrent networks."""

    def compile(model: Any = None, **_: Any) -> Any:
        now.neutral("torch.compile was left out")
        return model if model is not None else lambda function: function

    def script(obj: Any, *_: Any, **__: Any) -> Any:
        now.neutral("torch.jit.script was left out")
        return obj

    def compile_in_place(self: Any, *_: Any, **__: Any) -> None:
        now.neutral("torch.compile was left out")

    create = nn.RNNBase.__init__

    @wraps(create)
    def created(self: Any, *args: Any, **kwargs: Any) -> None:
        create(self, *args, **kwargs)
        if self.dropout:
            now.neutral("dropout between the layers of a recurrent network was switched off")
            self.dropout = 0.0

    setattr(torch, "compile", compile)  # noqa: B010
    setattr(torch.jit, "script", script)  # noqa: B010
    setattr(nn.Module, "compile", compile_in_place)  # noqa: B010
    setattr(nn.RNNBase, "__init__", created)  # noqa: B010
