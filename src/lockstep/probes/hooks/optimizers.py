"""Record the rates, gradients and parameters of each optimizer, step by step."""

from __future__ import annotations

import math
from functools import wraps
from itertools import count as count_up
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.utils import clip_grad
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from lockstep.probes.hooks import ddp
from lockstep.probes.hooks.randomness import states
from lockstep.probes.patching import replaces
from lockstep.probes.recorder import Recorder, Window, place

_SAME_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def install(recorder: Recorder) -> None:
    """Watch all optimizers."""
    counts: WeakKeyDictionary[Optimizer, list[int]] = WeakKeyDictionary()
    order = count_up()
    forwards: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
    known: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
    wraps_of: WeakKeyDictionary[Optimizer, list[ddp.Wrap]] = WeakKeyDictionary()

    @replaces("__init__", Optimizer)
    def created(create: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        create(self, *args, **kwargs)
        for listen in recorder.on_optimizer:
            listen(self)

    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            began(optimizer, place(2))
            return None
        where, first = place(2), True

        @wraps(closure)
        def closed(*given: Any, **named: Any) -> Any:
            nonlocal first
            # The closure makes the backward pass: there are no gradients before it.
            found = closure(*given, **named)
            if first and recorder.window.backwards:
                first = False
                began(optimizer, where)
            return found

        if "closure" in kwargs:
            return args, kwargs | {"closure": closed}
        return (args[0], closed, *args[2:]), kwargs

    def began(optimizer: Optimizer, where: str) -> None:
        if optimizer not in counts:
            # Not by how many there are: one that is gone has left its place.
            counts[optimizer] = [next(order), 0]
        count = counts[optimizer]
        number, step = count
        recorder.step = step
        most = recorder.settings.steps
        if most is not None and step >= most + recorder.further:
            recorder.stop("steps")
        for listen in recorder.on_step:
            listen(optimizer)
        window, recorder.window = recorder.window, Window()
        # The first step is looked at, so the wraps are known from then on, until there are others.
        if recorder.looks or known.get(optimizer) != ddp.wraps_made[0]:
            known[optimizer] = ddp.wraps_made[0]
            wraps_of[optimizer] = ddp.around(parameters_of(optimizer))
        through = sum(wrap.forwards[0] for wrap in wraps_of[optimizer])
        recorder.note(
            "step",
            optimizer=number,
            step=step,
            place=where,
            rates=[float(group.get("lr", 0.0)) for group in optimizer.param_groups],
            batches=window.batches,
            loaders=len(window.by_loader),
            samples=window.samples,
            wait=round(window.wait, 6),
            synced=max(window.synced.values(), default=0),
            unsynced=max(window.unsynced.values(), default=0),
            backwards=window.backwards,
            forwards=through - forwards.get(optimizer, 0),
            **(_looked(optimizer, number, window) if recorder.looks else {}),
        )
        forwards[optimizer] = through

    def after(optimizer: Optimizer, *_: Any) -> None:
        if optimizer in counts:
            ended(optimizer)
        for listen in recorder.on_stepped:
            listen(optimizer)

    def ended(optimizer: Optimizer) -> None:
        number, step = counts[optimizer]
        if recorder.looks:
            named = _named(optimizer, number)
            buffers = {
                f"{name}, model {m}": buffer
                for m, model in enumerate(ddp.wrapped_models)
                for name, buffer in model.module.named_buffers()
            }
            recorder.note(
                "stepped",
                optimizer=number,
                step=step,
                parameters=digests(named),
                buffers=digests(buffers),
            )
        counts[optimizer][1] = recorder.steps_of[id(optimizer)] = step + 1
        if recorder.window.backwards and not recorder.window.batches:
            # The optimizer called its closure again, on the batch of this step.
            recorder.window = Window()
        recorder.step = step + 1

    @replaces("clip_grad_norm_", clip_grad, torch.nn.utils)
    def clipped(clip: Any, parameters: Any, max_norm: Any, *args: Any, **kwargs: Any) -> Any:
        norm = clip(parameters, max_norm, *args, **kwargs)
        # For parameters in pieces (FSDP), all ranks would have to ask for the norm. Some scripts
        # set no limit: they only ask for the norm, to print it.
        if recorder.looks and type(norm) is Tensor and float(max_norm) < math.inf:
            recorder.note(
                "clip",
                step=recorder.step,
                norm=float(norm),
                backwards=recorder.window.backwards,
                scale=recorder.window.scale,
                place=place(2),
            )
        return norm

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters of an optimizer, in their order."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def _named(optimizer: Optimizer, number: int) -> dict[str, Tensor]:
    """Name the parameters of an optimizer: as DDP's model does, or by their place in it."""
    known = ddp.names()
    return {
        known.get(id(p), f"optimizer {number}, group {g}, parameter {i}"): p
        for g, group in enumerate(optimizer.param_groups)
        for i, p in enumerate(group["params"])
    }


def _looked(optimizer: Optimizer, number: int, window: Window) -> dict[str, Any]:
    named, known = _named(optimizer, number), ddp.names()
    grads = {name: p.grad for name, p in named.items() if p.grad is not None}
    return {
        "gradients": digests(grads),
        "unused": ddp.unused(list(named.values())),
        "left_out": bool(window.reached)
        and any(
            p.requires_grad and id(p) in known and id(p) not in window.reached
            for p in named.values()
        ),
        "strangers": ddp.strangers(),
        "wrapped": sum(id(p) in known for p in named.values()),
        "random": states(),
        "factors": window.factors,
    }


def digests(tensors: dict[str, Tensor]) -> dict[str, int]:
    """Return a number for each tensor that follows from its bits."""
    sums: dict[str, Tensor] = {}
    by_device: dict[torch.device, list[str]] = {}
    for name, tensor in tensors.items():
        # Pieces of a parameter (FSDP, tensor parallel) differ between ranks.
        if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
            continue
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
        bits = tensor.detach().view(_SAME_SIZE[tensor.element_size()])
        sums[name] = bits.sum(dtype=torch.int64)
        by_device.setdefault(tensor.device, []).append(name)
    values: dict[str, int] = {}
    for names in by_device.values():
        values |= zip(names, torch.stack([sums[n] for n in names]).tolist(), strict=True)
    return {name: values[name] for name in sums}
