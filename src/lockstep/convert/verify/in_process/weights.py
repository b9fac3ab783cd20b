"""Set the first weights to those of the original, and note all losses and weights after them."""

from __future__ import annotations

import gc
import weakref
import zlib
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel

from lockstep.convert.verify.in_process.training_state import Now
from lockstep.keys import key
from lockstep.probes.hooks.optimizers import parameters_of
from lockstep.rounding import moved_by_one_rounding

MOST = 1_000_000
"""The most elements of a tensor that are compared, evenly spread."""
_randint = torch.randint  # taken before torch_draws replaces it


def install(now: Now, *, as_is: bool = False) -> None:
    """Watch all optimizers. With `as_is`, every run keeps its own first weights."""
    numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
    order = count()
    new: list[Any] = []
    """Optimizers whose weights have not been used yet."""
    handles: list[Any] = []
    steps: dict[int, int] = {}
    names: dict[int, str] = {}

    def created(optimizer: Any) -> None:
        if optimizer not in numbers:
            numbers[optimizer] = next(order)
            new.append(weakref.ref(optimizer))
            if not handles:
                handles.append(register_module_forward_pre_hook(first))
        now.begun = True

    def first(_: Any, args: Any) -> None:
        # Not when the optimizer is made, since scripts may set weights after that.
        if new and torch.is_grad_enabled():
            handles.pop().remove()
            begun = [(numbers[one], one) for one in (known() for known in new) if one is not None]
            new.clear()
            if as_is:
                for number, optimizer in begun * now.kept.nudges:
                    _nudge(number, parameters_of(optimizer))
                return
            if not any(number in steps for number in numbers.values()):
                given = [list(x.shape) for x in args if isinstance(x, Tensor)]
                now.recorder.note("forward", shapes=given)
            for number, optimizer in begun:
                _begin(
                    now,
                    number,
                    parameters_of(optimizer),
                    later=bool(steps) or now.recorder.settings.resumed,
                )

    def stepped(optimizer: Any) -> None:
        number = numbers[optimizer]
        step = steps[number] = steps.get(number, -1) + 1
        now.steps += 1
        now.learned = True
        now.most_steps = max(now.most_steps, step + 1)
        now.evaluated = False
        now.names.clear()
        mine = parameters_of(optimizer)
        if not all(id(p) in names for p in mine):
            names.update(_names())
        labels = [names.get(id(p), f"parameter {n}") for n, p in enumerate(mine)]
        compare(now, number, step, labels, [sampled(p) for p in mine], state=_state(optimizer))

    now.recorder.on_optimizer.append(created)
    now.recorder.on_stepped.append(stepped)


def note_losses(now: Now) -> None:
    """Note the loss of every backward."""

    def backward() -> None:
        value = sum(float(loss.detach().double().sum()) for loss in now.recorder.losses)
        now.recorder.note(
            "loss",
            value=value,
            step=now.most_steps,
            number=now.backwards,
            rows=len(now.samples),
        )
        now.backwards += 1
        now.evaluated = False

    now.recorder.on_backward.append(backward)


def _begin(now: Now, number: int, mine: list[Tensor], *, later: bool) -> None:
    """Keep the weights before the first step, or set them to those that were kept.

    Those of a `later` optimizer stay as they are: what training did before must agree.
    """
    if now.kept.writes:
        now.kept.keep(f"{number}-start", [p.detach().clone() for p in mine])
        return
    theirs = now.kept.get(f"{number}-start")
    if theirs is None or [p.shape for p in theirs] != [p.shape for p in mine]:
        return
    for p, other in zip(mine, theirs, strict=True) if not later else ():
        if not torch.equal(p.detach(), other):
            now.neutral("the first weights were set to those of the original")
            p.data.copy_(other)
    if now.kept.nudges:
        _nudge(number, mine)


def _nudge(number: int, mine: list[Tensor]) -> None:
    """Move every weight by one rounding, up or down; a small one by that of its tensor's mean."""
    means = [float(p.detach().abs().mean()) for p in mine if p.is_floating_point() and p.numel()]
    typical = sum(means) / max(1, len(means)) or 1.0
    generator = torch.Generator()
    for n, p in enumerate(mine):
        if not p.is_floating_point() or not p.numel():
            continue
        generator.manual_seed(key("nudge", number, n))
        signs = _randint(0, 2, p.shape, generator=generator, device="cpu") * 2 - 1
        least = float(p.detach().abs().mean()) or typical
        p.data.copy_(moved_by_one_rounding(p.data, signs, torch.finfo(p.dtype).eps, least))


def compare(
    now: Now, number: int, step: int, names: list[str], mine: list[Tensor], *, state: int = 0
) -> None:
    """Keep the weights after a step, or note how far they are from those that were kept."""
    facts: dict[str, Any] = {"optimizer": number, "step": step, "digest": digest(mine)}
    facts["state"] = state
    theirs = None if now.kept.writes else now.kept.get(f"{number}-{step}")
    if now.kept.writes:
        now.kept.keep(f"{number}-{step}", mine)
    elif theirs is None or [t.shape for t in theirs] != [t.shape for t in mine]:
        facts["strange"] = theirs is not None
    elif now.rank == 0:
        facts["tensors"] = [_apart(*pair) for pair in zip(names, mine, theirs, strict=True)]
        start = now.kept.get(f"{number}-start") if step == 0 or now.kept.nudges else None
        if start is not None and len(start) == len(mine):
            start = [sampled(s) for s in start]
            facts["ratio"] = _ratio(start, mine, theirs) if step == 0 else None
            facts["moved"] = [_moved(*pair) for pair in zip(start, theirs, strict=True)]
    now.recorder.note("weights", **facts)


def _apart(name: str, mine: Tensor, theirs: Tensor) -> list[Any]:
    """Return [name, mean difference, size of one rounding, largest difference] of a tensor."""
    a, b = mine.double(), theirs.double()
    gap = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs())
    eps = torch.finfo(theirs.dtype).eps if theirs.is_floating_point() else 0.0
    if not gap.numel():
        return [name, 0.0, 0.0, 0.0]
    return [name, float(gap.mean()), eps * float(b.abs().mean()), float(gap.max())]


def _moved(start: Tensor, now: Tensor) -> list[float]:
    """Return how far training has moved a tensor in all, its elements, and its rounding."""
    if start.shape != now.shape:
        return [0.0, 0, 0.0]
    eps = torch.finfo(now.dtype).eps if now.is_floating_point() else 0.0
    return [float((now.double() - start.double()).abs().sum()), now.numel(), eps]


def _state(optimizer: Any) -> int:
    """Return a checksum of what an optimizer keeps for its parameters, and of its settings."""
    held = getattr(optimizer, "state", {})
    groups = getattr(optimizer, "param_groups", [])
    tensors = [
        value
        for group in groups
        for p in group["params"]
        for _, value in sorted((held.get(p) or {}).items(), key=lambda item: str(item[0]))
        if isinstance(value, Tensor)
    ]
    given = [sorted((k, str(v)) for k, v in group.items() if k != "params") for group in groups]
    return zlib.crc32(str(given).encode(), digest([sampled(t) for t in tensors]))


def _ratio(start: list[Tensor], mine: list[Tensor], theirs: list[Tensor]) -> float | None:
    """Return how far the first step went, relative to the step of the original."""
    both = own = 0.0
    for s, a, b in zip(start, mine, theirs, strict=True):
        both += float(((a - s).double() * (b - s).double()).sum())
        own += float((b - s).double().square().sum())
    return both / own if own else None


def sampled(tensor: Tensor) -> Tensor:
    """Return the elements of a tensor as one row; of a large tensor an evenly spread part."""
    flat = tensor.detach().reshape(-1)
    return flat[:: -(-flat.numel() // MOST) or 1].cpu().clone()


def digest(tensors: list[Tensor]) -> int:
    """Return a checksum of the bits."""
    found = 0
    for tensor in tensors:
        found = zlib.crc32(_bytes(tensor), found)
    return found


def _bytes(tensor: Tensor) -> Any:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _names() -> dict[int, str]:
    """Return the names of all parameters by identity, as the largest model names them."""
    # Not isinstance, since proxy objects warn when they are asked.
    models: list[Any] = [o for o in gc.get_objects() if issubclass(type(o), nn.Module)]
    sizes = {id(m): sum(1 for _ in m.modules()) for m in models}
    return {
        id(p): f"{type(m).__name__}.{name}"
        for m in sorted(models, key=lambda m: sizes[id(m)])
        if not isinstance(m, DistributedDataParallel)
        for name, p in m.named_parameters()
    }
