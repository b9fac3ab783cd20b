"""Evaluate a program's models: every sample once, the same bits on any number of replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lockstep.data.keyed import seed_generators
from lockstep.data.nested import map_tensors
from lockstep.data.readers import IndexedReader, Wanted
from lockstep.engine.group import Group
from lockstep.engine.program.losses import measured
from lockstep.engine.program.step import Computing
from lockstep.errors import LockstepError, RecipeError, raised
from lockstep.keys import key


class Evaluation:
    """Goes through a data set in chunks whose size does not depend on the replicas."""

    def __init__(
        self, computing: Computing, group: Group, reader: IndexedReader, samples: int, chunk: int
    ) -> None:
        self.computing, self.group, self.reader = computing, group, reader
        self.samples, self.chunk = samples, chunk
        self.chunks = range(-(-samples // chunk))
        self.mine = self.chunks[group.world.rank :: group.world.size]

    def _results(self, function: Callable[[Any], Any]) -> Iterator[tuple[int, Any]]:
        """Yield the number and the result of each of this replica's chunks."""
        name = getattr(function, "__name__", type(function).__name__)
        wanted = [
            Wanted(0, list(range(self.samples))[c * self.chunk : (c + 1) * self.chunk], c, 0)
            for c in self.mine
        ]
        with evaluating(self.computing), torch.no_grad():
            contents = self.reader.contents(wanted)
            for number in self.mine:
                content = next(contents)
                seed_generators(key(self.computing.seed, number, "evaluate"), self.group.device)
                try:
                    with self.computing.autocast():
                        found = function(content)
                except (LockstepError, torch.OutOfMemoryError):
                    raise
                except Exception as error:
                    raise RecipeError(raised(f"the evaluation {name}", error)) from error
                yield number, found

    def means(self, function: Callable[[Any], Any]) -> dict[str, float]:
        """Return the mean of each measured value over all samples."""
        rows: dict[int, dict[str, tuple[float, float]]] = {}
        name = getattr(function, "__name__", type(function).__name__)
        for number, found in self._results(function):
            pairs = measured(found, name).items()
            rows[number] = {key: (float(total), float(count)) for key, (total, count) in pairs}
        every = {n: row for part in self.group.objects(rows, "evaluate") for n, row in part.items()}
        names = list(every[0])
        if any(list(every[n]) != names for n in self.chunks):
            raise RecipeError(
                f"{name} returns different names for different batches. Return the same names "
                "every time."
            )
        means = {}
        for key_ in names:
            # One chunk after the other: an order that does not depend on the replicas.
            total, count = (sum(every[n][key_][i] for n in self.chunks) for i in (0, 1))
            means[key_] = total / count if count else float("nan")
        return means

    def collected(self, function: Callable[[Any], Any]) -> Any:
        """Return what the function gives for all samples, in their order, joined."""
        rows = {
            number: map_tensors(found, lambda t: t.detach().cpu())
            for number, found in self._results(function)
        }
        every = {n: row for part in self.group.objects(rows, "evaluate") for n, row in part.items()}
        return joined([every[n] for n in self.chunks])


def joined(parts: list[Any]) -> Any:
    """Join tensors and lists over the chunks of a data set, inside tuples and dicts, too."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(parts)
    if isinstance(first, dict):
        return {name: joined([part[name] for part in parts]) for name in first}
    if isinstance(first, tuple):
        columns = [joined(list(column)) for column in zip(*parts, strict=True)]
        return type(first)(*columns) if hasattr(first, "_fields") else tuple(columns)
    if is_dataclass(first) and not isinstance(first, type):
        names = [field.name for field in fields(first)]
        columns = [joined([getattr(part, name) for part in parts]) for name in names]
        return replace(first, **dict(zip(names, columns, strict=True)))
    if isinstance(first, list):
        return [item for part in parts for item in part]
    raise RecipeError(
        f"loop.collect can join tensors and lists, and tuples, dicts and dataclasses of them, not "
        f"{type(first).__name__}."
    )


@contextmanager
def evaluating(computing: Computing) -> Iterator[None]:
    """Switch all models to evaluation; afterwards each layer is as it was."""
    modes = {layer: layer.training for m in computing.modules for layer in m.modules()}
    for module in computing.modules:
        module.eval()
    try:
        yield
    finally:
        for layer, mode in modes.items():
            # Not module.train(): layers that the program froze stay frozen.
            layer.training = mode
