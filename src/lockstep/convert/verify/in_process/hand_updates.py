"""Notice updates of the weights without an optimizer, and count them as steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer

from lockstep.convert.verify.in_process.training_state import Now
from lockstep.convert.verify.in_process.weights import digest
from lockstep.probes.recorder import Recorder


class ByHand(Optimizer):
    """An optimizer that stands for the script, which has already updated the weights."""

    def __init__(self, first: Tensor, weights: list[Tensor]) -> None:
        super().__init__([first], {"lr": 0.0})
        # Not a copy: the list grows with every model that is called.
        self.param_groups[0]["params"] = weights

    def step(self, closure: Any = None) -> Any:
        """Do nothing: the script has already updated the weights."""


class Updates:
    """Calls `on_update` when the weights of any model have changed since the last backward."""

    def __init__(
        self,
        recorder: Recorder,
        on_update: Callable[[], None],
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        self.on_update, self.over = on_update, over
        self.weights: list[Tensor] = []
        """Weights of all models, in the order in which the models were called."""
        self._seen: set[int] = set()
        self._before: int | None = None
        zero_grad: Any = nn.Module.zero_grad

        @wraps(zero_grad)
        def emptied(module: Any, *args: Any, **kwargs: Any) -> None:
            # Look while the gradients of the step still exist.
            self._look()
            zero_grad(module, *args, **kwargs)

        recorder.on_backward.append(self._look)
        recorder.after_backward.append(self._remember)
        setattr(nn.Module, "zero_grad", emptied)  # noqa: B010
        register_module_forward_pre_hook(self._called)

    def _called(self, module: nn.Module, _: Any) -> None:
        if torch.is_grad_enabled() and id(module) not in self._seen:
            self._seen.add(id(module))
            new = [p for p in module.parameters() if p.requires_grad and id(p) not in self._seen]
            self._seen.update(map(id, new))
            self.weights += new
        self._look()

    def _remember(self) -> None:
        self._before = None if self.over() else digest(self.weights)

    def _look(self) -> None:
        if self._before is not None and digest(self.weights) != self._before:
            self._before = None
            self.on_update()


def notice(now: Now) -> None:
    """Stop the original at its first such update: the proof runs it again with `install`."""

    def stop() -> None:
        now.recorder.note("by_hand")
        now.recorder.stop("by hand")

    if now.kept.writes:
        # With an optimizer its steps count, and weights may change between them.
        Updates(now.recorder, stop, over=lambda: now.begun)


def install(recorder: Recorder) -> None:
    """Count the updates of a script that is known to make them, from its first weight on."""
    found: list[ByHand] = []
    updates = Updates(recorder, lambda: found[0].step())
    register: Any = nn.Module.register_parameter

    @wraps(register)
    def registered(module: Any, name: str, weight: Any) -> None:
        register(module, name, weight)
        if weight is not None and not found:
            found.append(ByHand(weight, updates.weights))

    setattr(nn.Module, "register_parameter", registered)  # noqa: B010
    recorder.note("neutralised", what="an update of the weights by hand counts as a step")
