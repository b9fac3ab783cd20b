"""From gradients to new weights: the rate of the step, clipping, the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.engine.recipe.recipe import Recipe, build

_FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
"""Optimizers of torch that can update all weights in one kernel."""


class Update:
    """The optimizer of a recipe, with its rates where the device can read them."""

    def __init__(self, recipe: Recipe, module: nn.Module, device: torch.device, exact: bool):
        self.recipe, self.exact = recipe, exact
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.optimizer: torch.optim.Optimizer = build(
            f"the optimizer of {recipe.name}",
            recipe.optimizer,
            module.parameters(),
            lr=recipe.learning_rate,
        )
        # Groups with rates of their own keep their ratio to the recipe's.
        self.ratios = [group["lr"] / recipe.learning_rate for group in self.optimizer.param_groups]
        self.fused = self._fuse(module)
        # With one element along an axis, equal memory may have other strides: fused kernels refuse.
        self.odd = [p for p in self.parameters if self.fused and p.dim() > 1 and 1 in p.shape]
        self.rates = self._put_rates_on(device) if device.type == "cuda" else []

    def _fuse(self, module: nn.Module) -> bool:
        """One kernel for all weights, unless the recipe has chosen otherwise."""
        groups = self.optimizer.param_groups
        free = all(g.get("fused", 0) is None and g.get("foreach", 0) is None for g in groups)
        sparse = any(getattr(layer, "sparse", False) is True for layer in module.modules())
        real = all(p.is_floating_point() for g in groups for p in g["params"])
        if type(self.optimizer) not in _FUSED or not free or sparse or not real:
            return False
        if any(g.get("differentiable") for g in groups):
            return False
        for group in groups:
            group["fused"] = True
        return True

    def _put_rates_on(self, device: torch.device) -> list[Tensor]:
        """Rates as tensors, which a recorded step reads anew each time it is replayed."""
        groups = self.optimizer.param_groups
        takes = self.fused or getattr(self.optimizer, "takes_tensor_rate", False)
        if not takes and not all(g.get("capturable") for g in groups):
            return []
        rates = []
        for group in groups:
            if "capturable" in group:
                group["capturable"] = True
            group["lr"] = torch.tensor(float(group["lr"]), device=device)
            rates.append(group["lr"])
        # Steps that are not recorded are meant: no need to be told.
        self.optimizer._warned_capturable_if_run_uncaptured = True
        return rates

    @property
    def obstacle(self) -> str | None:
        """Why an update cannot be recorded, if it cannot."""
        if self.rates:
            return None
        return f"{type(self.optimizer).__name__} takes its learning rate as a number"

    def set_rate(self, rate: float) -> None:
        """The learning rate of the next update."""
        for number, group in enumerate(self.optimizer.param_groups):
            if self.rates:
                self.rates[number].fill_(rate * self.ratios[number])
            else:
                group["lr"] = rate * self.ratios[number]

    def clip(self) -> None:
        """Scale the gradient down to the recipe's norm, if it is longer."""
        if self.recipe.clip is None:
            return
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        if self.exact:
            # A norm's bits may depend on how its operand is aligned in memory, which differs
            # between DDP's buckets and a replica alone: copies are always aligned.
            gradients = [g.clone(memory_format=torch.contiguous_format) for g in gradients]
        norm = torch.nn.utils.get_total_norm(gradients)
        torch.nn.utils.clip_grads_with_norm_(self.parameters, self.recipe.clip, norm)

    def step(self) -> None:
        """Change the weights."""
        for p in self.odd:
            if p.grad is not None and p.grad.stride() != p.stride():
                p.grad = _as_laid_out(p.grad, p)
        self.optimizer.step()

    def uncounted(self) -> dict[str, Any]:
        """Numbers that the optimizer keeps on itself, where no checkpoint looks for them."""
        own = vars(self.optimizer).items()
        return {n: v for n, v in own if type(v) in (int, float) and not n.startswith("_")}

    def forget_gradients(self) -> None:
        """As zero_grad does, without its note to the profiler."""
        for p in self.parameters:
            p.grad = None

    def state(self) -> list[Tensor]:
        """Every tensor that an update changes besides the weights."""
        return [value for value in self._kept() if isinstance(value, Tensor)]

    def numbers(self) -> list[Any]:
        """What an optimizer keeps as Python numbers, which a recorded step would not change."""
        return [value for value in self._kept() if isinstance(value, int | float)]

    def _kept(self) -> list[Any]:
        """All that the optimizer keeps, for a weight or for a group, besides the rates."""
        groups, states = self.optimizer.param_groups, self.optimizer.state.values()
        common = [v for g in groups for name, v in g.items() if name not in ("params", "lr")]
        return [*common, *(value for state in states for value in state.values())]

    def bookmark(self) -> Callable[[], None]:
        """A way back to these numbers and to these very tensors, whatever they hold by then."""
        optimizer = self.optimizer
        states = {p: dict(state) for p, state in optimizer.state.items()}
        groups = [dict(group) for group in optimizer.param_groups]

        def go_back() -> None:
            optimizer.state.clear()
            optimizer.state.update({p: dict(state) for p, state in states.items()})
            for group, then in zip(optimizer.param_groups, groups, strict=True):
                group.update(then)

        return go_back


def _as_laid_out(gradient: Tensor, p: Tensor) -> Tensor:
    """The gradient with the strides of its parameter."""
    pairs = zip(gradient.stride(), p.stride(), p.shape, strict=True)
    if all(mine == other for mine, other, size in pairs if size > 1):
        return gradient.as_strided(p.shape, p.stride())
    return torch.empty_like(p).copy_(gradient)
