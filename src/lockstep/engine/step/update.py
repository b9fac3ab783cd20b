"""Turn gradients into new weights: the rate of the step, clipping, the optimizer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.engine.recipe.recipe import Recipe, build
from lockstep.engine.sampler import Step
from lockstep.scaling.rates.schedules import warmed

_FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
"""Optimizers of torch that can update all weights in one kernel."""


class Update:
    """The optimizer of a recipe, with its rates in memory that the device can read."""

    def __init__(self, recipe: Recipe, module: nn.Module, device: torch.device, exact: bool):
        self.recipe, self.exact = recipe, exact
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.optimizer: torch.optim.Optimizer = build(
            f"the optimizer of {recipe.name}",
            recipe.optimizer,
            module if _takes_model(recipe.optimizer) else module.parameters(),
            lr=recipe.learning_rate,
        )
        # A group whose rate differs keeps its ratio to the recipe's rate.
        self.ratios = [group["lr"] / recipe.learning_rate for group in self.optimizer.param_groups]
        self.fused = self._fuse(module)
        # With one element along an axis, equal memory may have other strides, which fused kernels
        # refuse.
        self.odd = [p for p in self.parameters if self.fused and p.dim() > 1 and 1 in p.shape]
        self.rates = self._put_rates_on(device) if device.type == "cuda" else []
        self.schedule = warmed(recipe.schedule, recipe.warmup / recipe.epochs, recipe.warmup_start)
        # The rate of SGD grows with the gain of a larger step, other rates with its root.
        self.gain_power = 1.0 if isinstance(self.optimizer, torch.optim.SGD) else 0.5

    def _fuse(self, module: nn.Module) -> bool:
        """Use one kernel for all weights, unless the recipe has chosen otherwise."""
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
        """Make the rates tensors, which a recorded step reads each time it is replayed."""
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
        # Steps that are not recorded are intended: torch need not warn of them.
        self.optimizer._warned_capturable_if_run_uncaptured = True
        return rates

    @property
    def obstacle(self) -> str | None:
        """Why an update cannot be recorded, or None if it can."""
        if self.rates:
            return None
        return f"{type(self.optimizer).__name__} takes its learning rate as a number"

    def rate_of(self, step: Step) -> float:
        """Return the learning rate of `step`: of its place in the schedule, and of its gain."""
        # The middle of the step, so that a warmup does not start with a step of rate zero.
        rate = self.recipe.learning_rate * self.schedule(step.stride.progress)
        return rate * step.stride.gain**self.gain_power

    def rates_of(self, step: Step) -> list[float]:
        """Return the learning rate of each group of parameters in `step`."""
        rate = self.rate_of(step)
        return [rate * ratio for ratio in self.ratios]

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next update."""
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

    def counters(self) -> dict[str, Any]:
        """Return numbers that the optimizer keeps as attributes, which no checkpoint holds."""
        own = vars(self.optimizer).items()
        return {n: v for n, v in own if type(v) in (int, float) and not n.startswith("_")}

    def forget_gradients(self) -> None:
        """Drop all gradients as zero_grad does, without its note to the profiler."""
        for p in self.parameters:
            p.grad = None

    def state(self) -> list[Tensor]:
        """Return every tensor that an update changes besides the weights."""
        return [value for value in self._kept() if isinstance(value, Tensor)]

    def numbers(self) -> list[Any]:
        """Return the optimizer's Python numbers, which a recorded step cannot change."""
        return [value for value in self._kept() if isinstance(value, int | float)]

    def _kept(self) -> list[Any]:
        """Return all that the optimizer keeps, for a weight or for a group, besides the rates."""
        groups, states = self.optimizer.param_groups, self.optimizer.state.values()
        common = [v for g in groups for name, v in g.items() if name not in ("params", "lr")]
        return [*common, *(value for state in states for value in state.values())]

    def bookmark(self) -> Callable[[], None]:
        """Return a function that goes back to these numbers and tensors, not to their values."""
        optimizer = self.optimizer
        states = {p: dict(state) for p, state in optimizer.state.items()}
        groups = [dict(group) for group in optimizer.param_groups]

        def go_back() -> None:
            optimizer.state.clear()
            optimizer.state.update({p: dict(state) for p, state in states.items()})
            for group, then in zip(optimizer.param_groups, groups, strict=True):
                group.update(then)

        return go_back


def _takes_model(optimizer: Callable[..., Any]) -> bool:
    """Tell whether the first argument of a recipe's optimizer is called `model`."""
    try:
        names = inspect.signature(optimizer).parameters
    except (TypeError, ValueError):
        return False
    return next(iter(names), "") == "model"


def _as_laid_out(gradient: Tensor, p: Tensor) -> Tensor:
    """Return the gradient with the strides of its parameter."""
    pairs = zip(gradient.stride(), p.stride(), p.shape, strict=True)
    if all(mine == other for mine, other, size in pairs if size > 1):
        return gradient.as_strided(p.shape, p.stride())
    return torch.empty_like(p).copy_(gradient)
