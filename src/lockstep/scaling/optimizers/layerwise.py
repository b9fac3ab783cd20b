"""The base of optimizers that scale each layer's step by norms of its weights and gradients.

Each parameter counts as a layer. The lengths of biases and of the weights of norms (fewer than two
dimensions) say little about a good step: by default they take the plain step, without decay.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

Params = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]

_CACHED = 2**19
"""Weights of a piece: with gradients and state a few megabytes, a core's share of the cache."""


class Layers(NamedTuple):
    """Parameters of one group, device and type, those of two or more dimensions first."""

    weights: list[Tensor]
    gradients: list[Tensor]
    adapted: int
    """How many, from the first, have a step that is scaled by norms."""
    decayed: int
    """How many, from the first, have weight decay."""


class Layerwise(torch.optim.Optimizer):
    """An optimizer that updates layers. A step reads nothing from the device."""

    takes_tensor_rate = True
    """A recorded step may hand the learning rate over as a tensor."""

    @abstractmethod
    def _begin(self, p: Tensor) -> dict[str, Tensor]:
        """Return the state of a parameter before its first step: zeros."""

    @abstractmethod
    def _update(self, layers: Layers, group: dict[str, Any]) -> None:
        """Take one step of these layers."""

    def _check(self, settings: Mapping[str, Any]) -> None:
        """Refuse settings that cannot work."""
        check_rate(settings["lr"])
        for name in ("weight_decay", "eps"):
            check_number(name, settings[name])
        adapt = settings["adapt"]
        if not (adapt is None or isinstance(adapt, bool)):
            raise ValueError(
                f"adapt is {adapt!r}; use True (scale the step of every layer), False "
                "(of none) or None (of those with two or more dimensions)."
            )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group as torch does, and make its state now."""
        self._check({**self.defaults, **param_group})
        super().add_param_group(param_group)
        # Not in the first step: a CUDA graph of it would clear the state in every step.
        for p in self.param_groups[-1]["params"]:
            if p.requires_grad:
                self._state_of(p)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load as torch does, but into the existing tensors.

        Recorded steps stay valid, and counts and norms keep their device and precision. torch would
        leave counts on another device, and round norms to the type of the weights.
        """
        own = self.state
        super().load_state_dict(state_dict)
        self.state = own
        numbers = chain.from_iterable(g["params"] for g in state_dict["param_groups"])
        parameters = chain.from_iterable(g["params"] for g in self.param_groups)
        for number, p in zip(numbers, parameters, strict=True):
            saved = state_dict["state"].get(number)
            if saved is None:
                for tensor in own.get(p, {}).values():
                    tensor.zero_()
                continue
            for name, tensor in self._state_of(p).items():
                if name not in saved:
                    raise ValueError(
                        f"The state holds no {name} for parameter {number}: it is not that of "
                        f"{type(self).__name__}. Load a state that {type(self).__name__} saved."
                    )
                tensor.copy_(saved[name])

    def _state_of(self, p: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[p]
        if not state:
            if not p.is_floating_point():
                raise ValueError(
                    f"A parameter of shape {tuple(p.shape)} is {p.dtype}, for which "
                    f"{type(self).__name__} is not defined. Use real numbers; for complex ones, a "
                    "parameter that the model reads with torch.view_as_complex."
                )
            state.update(self._begin(p))
        return state

    def _states(self, layers: Layers, *names: str) -> list[list[Tensor]]:
        """Return the state of all layers, one list for each name."""
        states = [self.state[p] or self._state_of(p) for p in layers.weights]
        return [[state[name] for state in states] for name in names]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step. It reads nothing from the device, so a CUDA graph can hold it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for layers in self._layers(group):
                for piece in pieces(layers):
                    self._update(piece, group)
        return loss

    def _layers(self, group: dict[str, Any]) -> list[Layers]:
        """Return the group's parameters that have a gradient, by device and type."""
        used = [p for p in group["params"] if p.grad is not None and p.requires_grad]
        kinds = {(p.device, p.dtype) for p in used}
        result = []
        for kind in kinds:
            own = used if len(kinds) == 1 else [p for p in used if (p.device, p.dtype) == kind]
            large = [p for p in own if p.dim() >= 2]
            weights = large + [p for p in own if p.dim() < 2]
            gradients = [p.grad for p in weights if p.grad is not None]
            if any(g.layout is not torch.strided for g in gradients):
                raise RuntimeError(
                    f"{type(self).__name__} was given a sparse gradient, but scales by the norm of "
                    "a whole layer. Make the layer with sparse=False, or give its parameters to "
                    "torch.optim.SparseAdam."
                )
            decayed = len(weights) if group["adapt"] else len(large)
            adapted = 0 if group["adapt"] is False else decayed
            result.append(Layers(weights, gradients, adapted, decayed))
        return result


def pieces(layers: Layers) -> Iterator[Layers]:
    """Cut layers into pieces that, on the CPU, stay in its cache from one pass to the next."""
    weights, gradients, adapted, decayed = layers
    sizes = [p.numel() for p in weights]
    # Small models take one piece: each piece costs about twenty calls.
    if weights[0].device.type != "cpu" or sum(sizes) <= 2 * _CACHED:
        yield layers
        return
    begin = size = 0
    for end, elements in enumerate(sizes, 1):
        size += elements
        if size >= _CACHED or end == len(sizes):
            first = [min(max(number - begin, 0), end - begin) for number in (adapted, decayed)]
            yield Layers(weights[begin:end], gradients[begin:end], *first)
            begin, size = end, 0


def norms(tensors: list[Tensor]) -> Tensor:
    """Return the length of each tensor, computed at least in float32.

    >>> norms([torch.tensor([3.0, 4.0]), torch.zeros(2, 2)])
    tensor([5., 0.])
    """
    if tensors[0].is_cuda:
        # There the bits of a norm depend on the alignment of its operand, which differs between
        # DDP's buckets and one replica. A copy is always aligned.
        tensors = [t if t.data_ptr() % 64 == 0 else t.clone() for t in tensors]
    return torch.stack(torch._foreach_norm(tensors, 2, wide(tensors[0].dtype)))


def alike(layers: Layers, value: float) -> Tensor:
    """Return `value` for each layer."""
    weights = layers.weights
    return torch.full(
        (len(weights),), value, dtype=wide(weights[0].dtype), device=weights[0].device
    )


def number(value: float, beside: Tensor) -> float | Tensor:
    """Return `value` for a foreach call on tensors like `beside`.

    On the CPU such a call turns a number into a tensor for each tensor of its list, which takes
    longer than multiplying a small one.
    """
    on_cpu = beside.device.type == "cpu"
    return torch.tensor(value, dtype=torch.float64) if on_cpu else value


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which norms of `dtype` are kept: bfloat16 has too few bits."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def unless_nothing(ratios: Tensor, length: Tensor, otherwise: float) -> Tensor:
    """Return `ratios`, but `otherwise` where `length` is 0. NaN stays NaN.

    >>> lengths = torch.tensor([2.0, 0.0])
    >>> unless_nothing(1 / lengths, lengths, 1.0)
    tensor([0.5000, 1.0000])
    """
    return ratios.masked_fill_(length == 0, otherwise)


def check_rate(lr: Any) -> None:
    """Refuse a rate that is not a number from 0, or a tensor that holds one."""
    if isinstance(lr, Tensor):
        if lr.dim():
            raise ValueError(
                f"lr is a tensor of shape {tuple(lr.shape)}; it must hold one number: "
                "torch.tensor(0.1)."
            )
    else:
        check_number("lr", lr)


def check_number(name: str, value: Any, below: float = math.inf) -> None:
    """Refuse a value that is not a number from 0 to below `below`.

    >>> check_number("momentum", 1.5, below=1.0)
    Traceback (most recent call last):
    ValueError: momentum is 1.5; it must be a number from 0 to below 1.
    """
    if not (isinstance(value, int | float) and 0 <= value < below):
        limit = "on" if below == math.inf else f"to below {below:g}"
        raise ValueError(f"{name} is {value!r}; it must be a number from 0 {limit}.")


def check_betas(betas: Any) -> None:
    """Refuse betas that are not two numbers from 0 to below 1."""
    try:
        first, second = betas
    except (TypeError, ValueError):
        raise ValueError(f"betas is {betas!r}; it must be a pair, such as (0.9, 0.99).") from None
    check_number("the first of betas", first, below=1.0)
    check_number("the second of betas", second, below=1.0)
