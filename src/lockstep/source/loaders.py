"""Find DataLoaders, their arguments, the loops over them, and whether they are for training."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

import libcst as cst

from lockstep.source.gradients import is_backward, without_gradient
from lockstep.source.project import Project
from lockstep.source.script import Origin, Script
from lockstep.source.tree import argument, constant

DATA_LOADER = "torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"
SAMPLER = (
    "torch.utils.data.DistributedSampler",
    "torch.utils.data.distributed.DistributedSampler",
)
_AROUND = {
    "enumerate", "tqdm", "tqdm_notebook", "track", "iter", "islice", "zip", "progress_bar",
    "log_every", "Bar", "list", "cycle",
}  # fmt: skip
"""Functions that loops put around a loader."""
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
    node: cst.For
    loader: Loader
    trains: bool


@dataclass(eq=False)
class Loader:
    """A DataLoader."""

    project: Project
    script: Script
    call: cst.Call
    loops: list[Loop] = field(default_factory=list)
    """The loops over it."""

    def given(self, name: str) -> cst.BaseExpression | None:
        """Return the value of one of DataLoader's arguments."""
        return argument(self.call, name, _PLACES.get(name))

    def origins(self, name: str) -> list[Origin]:
        """Return the expressions that one of DataLoader's arguments may come from."""
        value = self.given(name)
        return self.project.origins(self.script, value) if value is not None else []

    def constants(self, name: str) -> list[object]:
        """Return the literal values that an argument may have, `...` for a computed one."""
        return [constant(origin.node) for origin in self.origins(name)]

    @cached_property
    def name(self) -> str:
        """Name of the variable or function that first holds the loader."""
        for parent in self.script.above(self.call):
            if isinstance(parent, cst.Assign):
                return self.script.code(parent.targets[0].target)
            if isinstance(parent, cst.AnnAssign):
                return self.script.code(parent.target)
            if isinstance(parent, cst.FunctionDef):
                return parent.name.value
            if isinstance(parent, cst.BaseCompoundStatement):
                return ""
        return ""

    @cached_property
    def trains(self) -> bool | None:
        """Whether the loader is for training; None if nothing tells."""
        if self.loops:
            return any(loop.trains for loop in self.loops)
        texts = [self.name, self._data_text]
        for call in self._data_sets():
            flag = constant(argument(call, "train"))
            if isinstance(flag, bool):
                return flag
            split = constant(argument(call, "split"))
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
        signs = [argument(call, n) for call in self._data_sets() for n in ("train", "split")]
        if any(constant(sign) in (False, "val", "valid", "validation", "test") for sign in signs):
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

    def _data_sets(self) -> list[cst.Call]:
        return [origin.call for origin in self.origins("dataset") if origin.call is not None]

    def split_by(self) -> tuple[list[Origin], bool]:
        """Return the DistributedSamplers it may have, and whether it can have no others."""
        found: list[Origin] = []
        only = True
        for name in ("sampler", "batch_sampler"):
            origins = self.origins(name)
            for origin in list(origins) if name == "batch_sampler" else ():
                inner = origin.call and argument(origin.call, "sampler", 0)
                origins += self.project.origins(origin.script, inner) if inner else []
            for origin in origins:
                made = origin.call and self.project.name(origin.script, origin.call.func)
                if made in SAMPLER:
                    found.append(origin)
                elif name == "sampler" and constant(origin.node) is not None:
                    only = False
        return found, only


def loaders(project: Project) -> list[Loader]:
    """Return all DataLoaders, with the loops over them."""
    found = {call: Loader(project, script, call) for script, call in project.calls(*DATA_LOADER)}
    for script in project.scripts:
        for node in script.order:
            if type(node) is cst.For:
                _note_loop(script, node, found, project)
    return list(found.values())


def _note_loop(
    script: Script, node: cst.For, found: dict[cst.Call, Loader], project: Project
) -> None:
    trains: bool | None = None
    for origin in project.origins(script, iterated(project, script, node.iter)):
        loader = found.get(origin.call) if origin.call is not None else None
        if loader is not None:
            if trains is None:
                trains = project.reaches(script, node.body, is_backward)
            loader.loops.append(Loop(script, node, loader, trains))


def iterated(project: Project, script: Script, node: cst.BaseExpression) -> cst.BaseExpression:
    """Return what a loop goes through, without enumerate, tqdm and the like."""
    while True:
        call: cst.CSTNode = node
        if isinstance(node, cst.Name):
            # `bar = tqdm(loader)`
            origins = project.origins(script, node)
            call = origins[0].node if len(origins) == 1 and origins[0].script is script else node
        if not isinstance(call, cst.Call) or not call.args or call.args[0].star:
            return node
        name = project.title(script, call.func)
        if name.rsplit(".", 1)[-1] not in _AROUND:
            return node
        node = call.args[0].value
