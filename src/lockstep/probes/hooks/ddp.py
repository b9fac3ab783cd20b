"""Record what DistributedDataParallel wraps, and how often it adds gradients over the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from lockstep.probes.patching import replaces
from lockstep.probes.recorder import Recorder, place


class Wrap(NamedTuple):
    """How a model was wrapped."""

    place: str
    reduced: frozenset[int]
    """Identities of the parameters whose gradients DDP adds. DDP keeps the parameters alive."""
    forwards: list[int]
    """Forward passes with gradients so far."""


wrapped_models: WeakKeyDictionary[DistributedDataParallel, Wrap] = WeakKeyDictionary()
"""Wrapped models in the order of wrapping, which is the same on all ranks."""
wraps_made = [0]
"""How many models were wrapped so far, or wrapped again."""


def install(recorder: Recorder) -> None:
    """Watch DDP, Join and every backward pass."""

    @replaces("__init__", DistributedDataParallel)
    def created(create: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        where = place(2)
        recorder.now(f"wrapping the model at {where}")
        create(self, *args, **kwargs)
        # A script that wraps a model again no longer uses the wrapper before.
        for old in [model for model in wrapped_models if model.module is self.module]:
            del wrapped_models[old]
        reduced = frozenset(id(p) for p in self._module_parameters if p.requires_grad)
        wrapped_models[self] = Wrap(where, reduced, [0])
        wraps_made[0] += 1
        norms = [m for m in self.module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        recorder.note(
            "wrapped",
            place=where,
            parameters=sum(p.numel() for p in self.module.parameters()),
            find_unused=self.find_unused_parameters,
            static_graph=bool(self.static_graph),
            norms=sum(not isinstance(m, nn.SyncBatchNorm) for m in norms),
        )

    @replaces("forward", DistributedDataParallel)
    def went_forward(forward: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled():
            if self.require_backward_grad_sync:
                recorder.window.synced[id(self)] += 1
            else:
                recorder.window.unsynced[id(self)] += 1
            if self in wrapped_models:
                wrapped_models[self].forwards[0] += 1
        where = place(2)
        # DDP broadcasts buffers here.
        recorder.now(f"forward at {where}")
        found = forward(self, *args, **kwargs)
        recorder.now(f"after forward at {where}")
        return found

    @replaces("__init__", Join)
    def joined(join: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        recorder.note("join", place=place(2))
        join(self, *args, **kwargs)

    @replaces("backward", torch.autograd)
    def went_backward(backward: Any, tensors: Any, *args: Any, **kwargs: Any) -> None:
        if not isinstance(tensors, Tensor | GradientEdge):
            tensors = tuple(tensors)
        window = recorder.window
        window.backwards += 1
        if recorder.looks:
            own = factor(tensors)
            window.factors.append(own and own / window.scale)
            if any(model.find_unused_parameters for model in wrapped_models):
                window.reached |= reached(tensors)
        roots = [tensors] if isinstance(tensors, Tensor) else tensors
        recorder.losses = [root for root in roots if isinstance(root, Tensor)]
        for listen in recorder.on_backward:
            listen()
        recorder.losses = []  # they keep the graph alive
        where = place(2)
        recorder.flush()
        recorder.now(f"backward at {where}")
        backward(tensors, *args, **kwargs)
        for listen in recorder.after_backward:
            listen()
        recorder.now(f"after backward at {where}")


SUMMED = 2
"""Torch's number for `reduction="sum"`."""


def factor(tensors: Any) -> float | None:
    """Return the factor that the script put on the loss: 0.25 for `(loss / 4).backward()`.

    None for a sum: a script that adds sums divides the gradient elsewhere.
    """
    loss = tensors if isinstance(tensors, Tensor) else next(iter(tensors), None)
    return _factor(getattr(loss, "grad_fn", None))


def _factor(node: Any, depth: int = 8) -> float | None:
    name = node.name() if node is not None and depth else ""
    before = [n for n, _ in node.next_functions if n is not None] if name else []
    if name in ("AddBackward0", "SubBackward0") and before:
        found = [_factor(one, depth - 1) for one in before]
        return None if None in found else max(one for one in found if one is not None)
    if name == "SumBackward0" or getattr(node, "_saved_reduction", None) == SUMMED:
        return None
    if name not in ("DivBackward0", "MulBackward0") or not before:
        return 1.0
    other = getattr(node, "_saved_other", None)
    if other is None and name == "MulBackward0":
        other = getattr(node, "_saved_self", None)
    value = _number(other)
    if not value:
        return 1.0
    inner = _factor(before[0], depth - 1)
    return inner and inner * (1 / value if name == "DivBackward0" else value)


def _number(value: Any) -> float | None:
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, Tensor) and value.numel() == 1 and not value.requires_grad:
        return float(value)
    return None


def reached(tensors: Any) -> set[int]:
    """Return the identities of the parameters that a backward pass will reach.

    Afterwards it is too late: DDP also fills gradients of parameters that only other ranks used.
    """
    roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    nodes: list[Any] = [t.grad_fn for t in roots if isinstance(t, Tensor)]
    seen, found = set(), set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (variable := getattr(node, "variable", None)) is not None:
            found.add(id(variable))
        nodes += [after for after, _ in node.next_functions]
    return found


def names() -> dict[int, str]:
    """Return the names of all wrapped parameters, by identity."""
    return {
        id(p): name if not number else f"{name} (model {number + 1})"
        for number, model in enumerate(wrapped_models)
        for name, p in model.module.named_parameters()
    }


def around(parameters: Iterable[Tensor]) -> list[Wrap]:
    """Return the wraps of the models that hold any of these parameters."""
    mine = {id(p) for p in parameters}
    return [
        wrap
        for model, wrap in wrapped_models.items()
        if any(id(p) in mine for p in model.module.parameters())
    ]


def strangers() -> dict[str, list[str]]:
    """Return parameters replaced or unfrozen since the wrap, by place of the wrap."""
    return _by_wrap(
        lambda model, wrap, name, p: (
            p.requires_grad and id(p) not in wrap.reduced and name not in model.parameters_to_ignore
        )
    )


def unused(parameters: list[Tensor]) -> dict[str, list[str]]:
    """Return the parameters without a gradient that DDP waits for, by place of the wrap."""
    lacking = {id(p) for p in parameters if p.requires_grad and p.grad is None}
    return _by_wrap(lambda model, wrap, name, p: id(p) in lacking & wrap.reduced)


def _by_wrap(wanted: Callable[[Any, Wrap, str, Tensor], bool]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for model, wrap in wrapped_models.items():
        for name, p in model.module.named_parameters():
            if wanted(model, wrap, name, p):
                found.setdefault(wrap.place, []).append(name)
    return found
