"""A DataLoader: its arguments, and whether it is for training."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import libcst as cst

from lockstep.source.gradients import without_gradient
from lockstep.source.project import Project
from lockstep.source.script import Origin, Script, Use, Via
from lockstep.source.tree import argument, constant, dotted, parts

DATA_LOADER = "torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"
SAMPLER = (
    "torch.utils.data.DistributedSampler",
    "torch.utils.data.distributed.DistributedSampler",
)
_PLACES = {
    "dataset": 0, "batch_size": 1, "shuffle": 2, "sampler": 3, "batch_sampler": 4,
    "num_workers": 5, "collate_fn": 6, "pin_memory": 7, "drop_last": 8, "timeout": 9,
    "worker_init_fn": 10,
}  # fmt: skip
"""Positions of DataLoader's arguments."""
_EVALUATION = "val|valid|validation|test|eval|evaluation|dev"
_TRAINING = "train|training|trn"
_MAY_EVALUATE = re.compile(rf"(^|_|\b)({_EVALUATION})", re.I)
_MAY_TRAIN = re.compile(rf"(^|_|\b)({_TRAINING})(_|\b|\d)", re.I)
_WORD = r"(?<![a-z])({})(?=loader|set|data|dl|ds|iter|[^a-z]|$)"
_EVALUATES = re.compile(_WORD.format(_EVALUATION), re.I)
_TRAINS = re.compile(_WORD.format(_TRAINING), re.I)
"""Certain words: `val_loader` and `valset`, but not `values`, which only may be evaluation."""


@dataclass(eq=False)
class Loop:
    """A loop over batches."""

    script: Script
    node: cst.For | cst.While
    loader: Loader
    trains: bool
    alone: bool = False
    """Whether only some ranks run it."""


@dataclass(eq=False)
class Loader:
    """A DataLoader, as one call of the functions around it makes it."""

    project: Project
    script: Script
    call: cst.Call
    """The call with DataLoader's arguments."""
    via: Via = ()
    """The calls of the functions around it, whose arguments count."""
    maker: Use | None = None
    """The call of a class that is built on DataLoader, if there is one."""
    loops: list[Loop] = field(default_factory=list)
    """The loops over it."""

    @property
    def place(self) -> Use:
        """The call that makes the loader."""
        return self.maker or (self.script, self.call)

    @cached_property
    def _spread(self) -> list[Origin]:
        """The dictionaries that the call takes arguments from: `**kwargs`."""
        values = [arg.value for arg in self.call.args if arg.star == "**"]
        return [o for v in values for o in self.project.origins(self.script, v, self.via)]

    @cached_property
    def unclear(self) -> bool:
        """Whether there may be arguments that nobody can see."""
        lists = any(arg.star == "*" for arg in self.call.args)
        return lists or not all(_shows_keys(origin.node) for origin in self._spread)

    def _given(self, name: str) -> Origin | None:
        value = argument(self.call, name, _PLACES.get(name))
        if value is not None:
            return Origin(self.script, value, via=self.via)
        for key, put in self._put:
            if key == name and put is not None:
                return Origin(self.script, put, via=self.via)
        for spread in self._spread:
            for found in parts(spread.node, name):
                return Origin(spread.script, found, via=spread.via)
        return None

    @cached_property
    def _put(self) -> list[tuple[int | str, cst.CSTNode | None]]:
        """What is put into the dictionaries of `**kwargs`, by key: `kwargs["sampler"] = ...`."""
        names = [dotted(arg.value) for arg in self.call.args if arg.star == "**"]
        scope = self.script.scope_of(self.call)
        return [(b.index[0], b.value) for name in names if name for b in scope.put(name)]

    def given(self, name: str) -> cst.BaseExpression | None:
        """Return the value of one of DataLoader's arguments."""
        found = self._given(name)
        return cast(cst.BaseExpression, found.node) if found is not None else None

    def gets(self, name: str) -> bool:
        """Return whether an argument is given, and may be something else than None."""
        return any(constant(origin.node) is not None for origin in self.origins(name))

    def origins(self, name: str) -> list[Origin]:
        """Return the expressions that one of DataLoader's arguments may come from."""
        found = self._given(name)
        return self.project.origins(found.script, found.node, found.via) if found else []

    def makers(self, name: str) -> list[tuple[Script, cst.Call, str]]:
        """Return the calls that an argument may come from, each with its function's full name."""
        calls = [(o.script, o.call) for o in self.origins(name) if o.call is not None]
        return [(where, call, self.project.name(where, call.func) or "") for where, call in calls]

    def constants(self, name: str) -> list[object]:
        """Return the literal values that an argument may have, `...` for a computed one."""
        return [constant(origin.node) for origin in self.origins(name)]

    @cached_property
    def name(self) -> str:
        """Name of the variable that first holds the loader, or of the function that makes it."""
        function = ""
        calls = [(p.script, p.call) for p in reversed(self.via)]
        for script, node in [self.place, *calls]:
            for parent in script.above(node):
                if isinstance(parent, cst.Assign):
                    return script.code(parent.targets[0].target)
                if isinstance(parent, cst.AnnAssign):
                    return script.code(parent.target)
                if isinstance(parent, cst.FunctionDef):
                    function = function or parent.name.value
                    break
                if isinstance(parent, cst.BaseCompoundStatement):
                    return function
        return function

    @cached_property
    def trains(self) -> bool | None:
        """Whether the loader is for training; None if nothing tells."""
        if self.loops:
            return any(loop.trains for loop in self.loops)
        texts = [self.name, self._data_text]
        for origin in self.origins("dataset"):
            flag = self._value(origin, "train")
            if isinstance(flag, bool):
                return flag
            split = self._value(origin, "split")
            texts.append(split if isinstance(split, str) else "")
        for text in texts:
            if _MAY_EVALUATE.search(text):
                return False
            if _MAY_TRAIN.search(text):
                return True
        return None

    @cached_property
    def evaluates(self) -> bool:
        """Whether the loader is certainly for evaluation: no backward, and a sign of it."""
        if self.trains is not False:
            return False
        data = self.origins("dataset")
        signs = [self._value(origin, name) for origin in data for name in ("train", "split")]
        if any(sign in (False, "val", "valid", "validation", "test") for sign in signs):
            return True
        text = f"{self.name} {self._data_text}"
        if _EVALUATES.search(text):
            return not _TRAINS.search(self.name)
        if _TRAINS.search(text):
            return False
        return any(without_gradient(loop.script, loop.node) for loop in self.loops)

    @property
    def _data_text(self) -> str:
        data = self.given("dataset")
        return self.script.code(data) if data is not None else ""

    def _value(self, origin: Origin, name: str) -> object:
        """Return the literal that a data set gets as an argument, or `...`."""
        given = argument(origin.call, name) if origin.call is not None else None
        if given is None:
            return ...
        found = {constant(o.node) for o in self.project.origins(origin.script, given, origin.via)}
        return found.pop() if len(found) == 1 else ...

    def split_by(self) -> tuple[list[Origin], bool]:
        """Return the DistributedSamplers it may have, and whether it can have no others."""
        found: list[Origin] = []
        only = True
        for name in ("sampler", "batch_sampler"):
            origins = self.origins(name)
            for origin in list(origins) if name == "batch_sampler" else ():
                inner = argument(origin.call, "sampler", 0) if origin.call is not None else None
                if inner is not None:
                    origins += self.project.origins(origin.script, inner, origin.via)
            for origin in origins:
                made = origin.call and self.project.name(origin.script, origin.call.func)
                if made in SAMPLER:
                    found.append(origin)
                elif name == "sampler" and constant(origin.node) is not None:
                    only = False
        return found, only

    def fits(self, via: Via) -> bool:
        """Return whether a value that came through these calls may be this loader."""
        calls = {passage.function: passage.call for passage in self.via}
        return all(calls.get(p.function, p.call) is p.call for p in via)


def _shows_keys(node: cst.CSTNode) -> bool:
    """Return whether all keys of a dictionary can be seen."""
    if isinstance(node, cst.Dict):
        pairs = [e for e in node.elements if isinstance(e, cst.DictElement)]
        return len(pairs) == len(node.elements) and all(constant(e.key) is not ... for e in pairs)
    if isinstance(node, cst.Call) and dotted(node.func) == "dict":
        return all(arg.keyword is not None for arg in node.args)
    return False
