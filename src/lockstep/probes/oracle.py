"""The gradient oracle: one step on several ranks, repeated by one process on the same batch.

The ranks keep their first step: the batches, the parameters before it, the gradient after it. A
second run of the script, on one rank, is given the same parameters and all batches joined. Its
gradient is what the ranks' gradient should be. Batch norm and dropout, which are different in one
large batch by nature, are computed rank by rank there.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any
from weakref import WeakSet

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from lockstep.probes import wrapper
from lockstep.probes.randomness import states
from lockstep.probes.record import Batch, Recorder

MOST_BYTES = 2_000_000_000
"""Batches and parameters that are kept; a step that needs more is not judged."""
FLOOR = 0.01
"""A parameter's difference is measured against its gradient, or this share of the whole one."""
DRAWING = ("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial")
DRAWING_IN_PLACE = ("normal_", "uniform_", "random_", "bernoulli_", "exponential_", "multinomial")
_LOADING = "/torch/utils/data/"
DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout")


def install(recorder: Recorder) -> None:
    """Keep the first step, or repeat one that was kept."""
    optimizers: WeakSet[Optimizer] = WeakSet()
    create: Any = Optimizer.__init__

    @wraps(create)
    def created(self: Any, *args: Any, **kwargs: Any) -> None:
        create(self, *args, **kwargs)
        optimizers.add(self)

    setattr(Optimizer, "__init__", created)  # noqa: B010
    listener: Keeper | Repeater
    if recorder.settings.oracle is not None:
        listener = Repeater(recorder, optimizers)
    else:
        listener = Keeper(recorder, optimizers)
    recorder.on_batch.append(listener.batch)
    recorder.on_backward.append(listener.backward)
    recorder.on_step.append(listener.step)


class Keeper:
    """Keeps the first step of one rank."""

    def __init__(self, recorder: Recorder, optimizers: WeakSet[Optimizer]) -> None:
        self.recorder, self.optimizers = recorder, optimizers
        self.batches: dict[str, list[dict[str, Any]]] = {}
        self.parameters: dict[int, list[Tensor]] = {}
        self.autocast: str | None = None
        self.others: dict[str, int] = {}
        """Generators besides torch's own, when the last batch was there."""
        self.room, self.over = MOST_BYTES, False

    def batch(self, data: Any, batch: Batch) -> Any:
        """On its way to the script."""
        if self.over or self.recorder.worker:
            return data
        kept = self.batches.setdefault(batch.loader, [])
        if batch.number == 0:
            self.room += sum(entry["bytes"] for entry in kept)
            kept.clear()
        size = sum(t.nbytes for t in tensors(data))
        if size > self.room:
            self._give_up("a batch is too large to be kept")
            return data
        self.room -= size
        kept.append(
            {
                "data": mapped(data, lambda t: t.detach().clone()),
                "size": batch.size,
                "bytes": size,
                "random": _random(),
                "grad": torch.is_grad_enabled(),
            }
        )
        self.others = _others()
        return data

    def backward(self) -> None:
        """The first one: parameters are still what the forward pass saw."""
        if self.over or self.parameters:
            return
        if torch.is_autocast_enabled("cuda") and torch.cuda.is_initialized():
            self.autocast = str(torch.get_autocast_dtype("cuda"))
        elif torch.is_autocast_enabled("cpu"):
            self.autocast = str(torch.get_autocast_dtype("cpu"))
        size = sum(p.nbytes for o in self.optimizers for p in of(o))
        if size > self.room:
            self._give_up("the model is too large to be kept")
            return
        self.parameters = {id(o): [p.detach().clone() for p in of(o)] for o in self.optimizers}

    def step(self, optimizer: Any) -> None:
        """The first one: write it all."""
        if self.over or self.recorder.rank is None:
            return
        self.over = True
        if any(type(p) not in (Tensor, nn.Parameter) for p in of(optimizer)):
            self._give_up("each rank has a piece of the parameters only")
            return
        before = self.parameters.get(id(optimizer))
        batches = {loader: kept for loader, kept in self.batches.items() if kept}
        if before is None or not batches:
            self.recorder.note("oracle", verdict="impossible", why=_NO_LOADER)
            return
        known = wrapper.names()
        content = {
            "batches": batches,
            "parameters": before,
            "gradients": [
                None if p.grad is None else p.grad.detach().clone() for p in of(optimizer)
            ],
            "names": [known.get(id(p), f"parameter {n}") for n, p in enumerate(of(optimizer))],
            "random": _random(),
            "drew": self.others != _others(),
            "autocast": self.autocast,
        }
        _save(content, Path(self.recorder.settings.folder, f"first-step-{self.recorder.rank}.pt"))
        self.batches, self.parameters = {}, {}

    def _give_up(self, why: str) -> None:
        self.over, self.batches = True, {}
        self.recorder.note("oracle", verdict="impossible", why=why)


_NO_LOADER = "the batches of the first step do not come from a DataLoader"
_saved, _loaded = torch.save, torch.load


def _save(content: Any, path: Path) -> None:
    # Through the functions as they were: this is no save of the script's.
    _saved(content, path)


def _others() -> dict[str, int]:
    """The states of generators that are not torch's."""
    return {name: state for name, state in states().items() if name != "torch"}


def _random() -> Tensor:
    """The state of the generator that dropout draws from."""
    return _cuda.get_rng_state() if _ON_GPU and _in_use() else torch.get_rng_state()


def _set_random(state: Tensor) -> None:
    if _ON_GPU and _in_use():
        _cuda.set_rng_state(state)
    else:
        torch.set_rng_state(state)


# As they are now: later the CPU may stand in for a GPU.
_cuda: Any = torch.cuda
_ON_GPU = torch.version.cuda is not None and torch.cuda.is_available()
_in_use = _cuda.is_initialized


class Repeater:
    """Repeats, on one rank, the first step that several have kept."""

    def __init__(self, recorder: Recorder, optimizers: WeakSet[Optimizer]) -> None:
        self.recorder, self.optimizers = recorder, optimizers
        folder = Path(str(recorder.settings.oracle))
        files = sorted(folder.glob("first-step-*.pt"), key=lambda p: int(p.stem.split("-")[-1]))
        self.ranks = [_loaded(path, map_location="cpu", weights_only=False) for path in files]
        self.replay = Replay()
        self.fed: dict[str, int] = {}
        _by_rank(self.replay)

    def batch(self, data: Any, batch: Batch) -> Any:
        """The ranks' batches in place of the script's own."""
        if self.recorder.worker:
            return data
        kept = [rank["batches"].get(batch.loader, []) for rank in self.ranks]
        if not any(kept):
            return data  # a loader that the step does not use
        if batch.number == 0:
            self.fed[batch.loader] = 0
        number = self.fed[batch.loader]
        self.fed[batch.loader] += 1
        entries = self._entries(kept, number)
        if entries is None:
            self._impossible(
                "asks for more batches"
                if self.recorder.settings.joined
                else "one process takes another number of batches for a step"
            )
            return data
        self.replay.sizes = [entry["size"] for entry in entries]
        self.replay.states = [entry["random"] for entry in entries]
        try:
            joined = joined_batches([entry["data"] for entry in entries], self.replay.sizes)
        except (RuntimeError, TypeError, ValueError) as error:
            self._impossible(f"the ranks' batches cannot be joined to one: {error}")
        self._set_parameters()
        return mapped(joined, lambda t: t.clone())

    def _entries(self, kept: list[Any], number: int) -> list[Any] | None:
        if self.recorder.settings.joined:
            return [batches[number] for batches in kept] if number < len(kept[0]) else None
        turn, rank = divmod(number, len(kept))
        return [kept[rank][turn]] if turn < len(kept[0]) else None

    def _set_parameters(self) -> None:
        for optimizer in self.optimizers:
            mine, kept = of(optimizer), self.ranks[0]["parameters"]
            if [p.shape for p in mine] == [k.shape for k in kept]:
                with torch.no_grad():
                    for parameter, value in zip(mine, kept, strict=True):
                        # Through .data: the version that autograd knows stays the same.
                        parameter.data.copy_(value)

    def backward(self) -> None:
        """Nothing to do."""

    def step(self, optimizer: Any) -> None:
        """The first one: compare."""
        import torch.distributed as dist

        if dist.is_initialized() and dist.get_world_size() > 1:
            self._impossible("the script starts several ranks by itself also when it is given one")
        mine, kept = of(optimizer), self.ranks[0]
        if [p.shape for p in mine] != [k.shape for k in kept["parameters"]]:
            self._impossible("on one rank the script trains other parameters")
        facts = compared(
            kept["names"],
            kept["gradients"],
            [None if p.grad is None else p.grad.detach() for p in mine],
            kept["autocast"],
        )
        drawn = [rank["random"] for rank in self.ranks]
        other = any(rank["drew"] for rank in self.ranks)
        faithful = not self.recorder.settings.joined or (
            len(self.replay.states) == len(drawn)
            and all(map(torch.equal, self.replay.states, drawn))
        )
        faithful = faithful and not self.replay.drew and not other
        if not facts["agrees"] and not faithful:
            self._impossible("the step draws random numbers other than dropout's")
        self.recorder.note(
            "oracle",
            verdict="agrees" if facts["agrees"] else "differs",
            by_rank=sorted(self.replay.used),
            square=self.replay.square,
            counted=[counted(rank["batches"]) for rank in self.ranks],
            **{key: value for key, value in facts.items() if key != "agrees"},
        )
        self.recorder.stop("oracle")

    def _impossible(self, why: str) -> None:
        self.recorder.note("oracle", verdict="impossible", why=why)
        self.recorder.stop("oracle")


def of(optimizer: Optimizer) -> list[Tensor]:
    """Its parameters, in their order."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def tensors(data: Any) -> list[Tensor]:
    """Every tensor inside a batch."""
    found: list[Tensor] = []
    mapped(data, lambda t: found.append(t) or t)  # type: ignore[func-returns-value]
    return found


def mapped(data: Any, change: Callable[[Tensor], Any]) -> Any:
    """A batch with all its tensors changed."""
    if isinstance(data, Tensor):
        return change(data)
    if isinstance(data, dict):
        changed = {key: mapped(value, change) for key, value in data.items()}
        return _like(data, changed)
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(mapped(value, change) for value in data))
    if isinstance(data, list | tuple):
        return type(data)(mapped(value, change) for value in data)
    return data


def _like(original: Any, content: dict[Any, Any]) -> Any:
    """A mapping of the original's type, such as transformers' BatchEncoding."""
    if type(original) is dict:
        return content
    try:
        return type(original)(content)
    except TypeError:
        return content


def joined_batches(batches: list[Any], sizes: list[int]) -> Any:
    """Batches of several ranks as one batch.

    >>> joined_batches([[torch.ones(1, 2), ["a"]], [torch.ones(1, 2), ["b"]]], [1, 1])
    [tensor([[1., 1.],
            [1., 1.]]), ['a', 'b']]
    """
    first = batches[0]
    if len(batches) == 1:
        return first
    if isinstance(first, Tensor):
        if not first.dim():
            return first
        for dim in range(min(2, first.dim())):
            if all(b.shape[dim] == size for b, size in zip(batches, sizes, strict=True)):
                return torch.cat(batches, dim)
        return torch.cat(batches)
    if isinstance(first, dict):
        return _like(first, {k: joined_batches([b[k] for b in batches], sizes) for k in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(joined_batches(list(p), sizes) for p in zip(*batches, strict=True)))
    if isinstance(first, list | tuple):
        lengths = [len(batch) for batch in batches]
        # A value for each sample, as detectors have it, or a tensor of all for each field?
        if lengths == sizes and not all(_holds(v, sizes[0]) for v in first):
            return type(first)(value for batch in batches for value in batch)
        if lengths == sizes and len(set(lengths)) > 1:
            return type(first)(value for batch in batches for value in batch)
        return type(first)(joined_batches(list(p), sizes) for p in zip(*batches, strict=True))
    return first


def _holds(value: Any, size: int) -> bool:
    """Whether it has a row for each of so many samples."""
    if isinstance(value, dict):
        return bool(value) and all(_holds(inner, size) for inner in value.values())
    if isinstance(value, list | tuple):
        return len(value) == size
    return isinstance(value, Tensor) and value.dim() > 0 and size in value.shape[:2]


class Replay:
    """How the ranks' batches lie in the joined one, and where the random numbers of each are."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.states: list[Tensor] = []
        self.used: set[str] = set()
        self.square = 0
        """Samples of a rank that a loss compares with each other, if one does."""
        self.drew = False
        """Whether numbers were drawn from a generator of the script's own."""

    def parts(self, rows: int) -> list[int] | None:
        """Rows of each rank in a tensor of so many; None if it does not hold samples."""
        total = sum(self.sizes)
        if len(self.sizes) < 2 or not total or rows % total:
            return None
        return [size * (rows // total) for size in self.sizes]


def _by_rank(replay: Replay) -> None:
    """Batch norm and dropout as each rank computes them."""
    norm: Any = F.batch_norm

    @wraps(norm)
    def ghost(x: Tensor, mean: Any, variance: Any, *args: Any, **kwargs: Any) -> Tensor:
        training = kwargs.get("training", args[2] if len(args) > 2 else False)
        parts = replay.parts(x.shape[0]) if training else None
        if parts is None:
            return norm(x, mean, variance, *args, **kwargs)
        replay.used.add("batch norm")
        return torch.cat([norm(part, None, None, *args, **kwargs) for part in x.split(parts)])

    def by_rank(original: Any) -> Any:
        @wraps(original)
        def dropped(
            x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
        ) -> Tensor:
            parts = replay.parts(x.shape[0]) if training and p > 0 and x.dim() else None
            if parts is None:
                return original(x, p, training, inplace)
            replay.used.add("dropout")
            own, found = _random(), []
            for rank, part in enumerate(x.split(parts)):
                _set_random(replay.states[rank])
                found.append(original(part, p, training))
                replay.states[rank] = _random()
            _set_random(own)
            return torch.cat(found)

        return dropped

    def over_squares(original: Any) -> Any:
        @wraps(original)
        def called(x: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(x, Tensor) and x.dim() == 2 and x.shape[0] == x.shape[1]:
                parts = replay.parts(x.shape[0])
                if parts is not None:
                    replay.square = parts[0]
            return original(x, *args, **kwargs)

        return called

    def with_generator(original: Any) -> Any:
        @wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            # Samplers have generators too: theirs are drawn from before the batch is there.
            if kwargs.get("generator") is not None:
                caller = sys._getframe(1).f_code.co_filename
                replay.drew = replay.drew or (bool(replay.sizes) and _LOADING not in caller)
            return original(*args, **kwargs)

        return called

    for owner, drawing in ((torch, DRAWING), (Tensor, DRAWING_IN_PLACE)):
        for name in drawing:
            setattr(owner, name, with_generator(getattr(owner, name)))
    for owner, name in (
        (F, "cross_entropy"),
        (F, "log_softmax"),
        (F, "softmax"),
        (torch, "logsumexp"),
        (Tensor, "logsumexp"),
        (Tensor, "softmax"),
        (Tensor, "log_softmax"),
    ):
        setattr(owner, name, over_squares(getattr(owner, name)))
    functions: Any = F
    functions.batch_norm = ghost
    for name in DROPOUTS:
        setattr(F, name, by_rank(getattr(F, name)))
    # Synchronised batch norm is over the whole batch already, also on one rank.
    forward: Any = nn.SyncBatchNorm.forward

    @wraps(forward)
    def synced(self: Any, x: Tensor) -> Tensor:
        functions.batch_norm = norm
        try:
            return forward(self, x)
        finally:
            functions.batch_norm = ghost

    setattr(nn.SyncBatchNorm, "forward", synced)  # noqa: B010


IGNORED = -100
"""The target that torch's losses leave out."""


def counted(batches: dict[str, list[dict[str, Any]]]) -> int:
    """Targets of a rank that are not left out, and entries of its masks that are set."""
    found = 0
    for tensor in (
        t for kept in batches.values() for entry in kept for t in tensors(entry["data"])
    ):
        if tensor.dtype == torch.bool:
            found += int(tensor.sum())
        elif not tensor.is_floating_point() and bool((tensor == IGNORED).any()):
            found += int((tensor != IGNORED).sum())
        elif tensor.dim() > 1 and bool(((tensor == 0) | (tensor == 1)).all()):
            found += int(tensor.sum())
    return found


def tolerance(gradients: list[Tensor | None], autocast: str | None) -> float:
    """The relative difference that rounding explains: half of the digits may be lost on the way."""
    kinds = {g.dtype for g in gradients if g is not None and g.dtype.is_floating_point}
    if autocast is not None:
        kinds.add(getattr(torch, autocast.removeprefix("torch.")))
    return math.sqrt(max((torch.finfo(kind).eps for kind in kinds), default=1e-7))


def compared(
    names: list[str],
    ranks: list[Tensor | None],
    one: list[Tensor | None],
    autocast: str | None,
) -> dict[str, Any]:
    """Where and how much the ranks' gradient differs from that of one process."""
    bound = tolerance(one, autocast)
    pairs = [
        (name, a.double().cpu(), b.double().cpu())
        for name, a, b in zip(names, ranks, one, strict=True)
        if a is not None and b is not None
    ]
    lone = [n for n, a, b in zip(names, ranks, one, strict=True) if (a is None) != (b is None)]
    whole = math.sqrt(sum(float(b.square().sum()) for _, _, b in pairs))
    worst, first = 0.0, None
    for name, a, b in pairs:
        scale = max(float(b.norm()), FLOOR * whole, 1e-300)
        difference = float((a - b).norm()) / scale
        worst = max(worst, difference)
        if not difference <= bound and first is None:
            first = (name, difference)
    inner = sum(float((a * b).sum()) for _, a, b in pairs)
    length = math.sqrt(sum(float(a.square().sum()) for _, a, _ in pairs))
    return {
        "agrees": first is None and not lone,
        "tolerance": bound,
        "worst": worst,
        "first": first[0] if first else (lone[0] if lone else None),
        "difference": first[1] if first else None,
        "ratio": inner / whole**2 if whole else None,
        "cosine": inner / (whole * length) if whole and length else None,
        "parameters": len(pairs),
    }
