"""What a training script consists of: loaders, loops, wrapped models, and who starts it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TypeGuard

import libcst as cst

from lockstep.source.project import DEPTH, Project
from lockstep.source.script import Script
from lockstep.source.tree import argument, constant, statements, walk, walk_shallow

DATA_LOADER = "torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"
SAMPLER = (
    "torch.utils.data.DistributedSampler",
    "torch.utils.data.distributed.DistributedSampler",
)
WRAPPERS = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "apex.parallel.DistributedDataParallel",
)
_CUTS = "FullyShardedDataParallel"
FRAMEWORKS = {
    "accelerate": "Accelerate",
    "lightning": "Lightning",
    "pytorch_lightning": "Lightning",
    "lightning_fabric": "Lightning",
    "deepspeed": "DeepSpeed",
    "transformers.Trainer": "Hugging Face Trainer",
    "transformers.Seq2SeqTrainer": "Hugging Face Trainer",
    "ray.train": "Ray Train",
    "horovod": "Horovod",
}
"""What does part of the work by itself, by the start of its names."""
_PLACES = {
    "dataset": 0,
    "batch_size": 1,
    "shuffle": 2,
    "sampler": 3,
    "batch_sampler": 4,
    "num_workers": 5,
    "collate_fn": 6,
    "pin_memory": 7,
    "drop_last": 8,
    "timeout": 9,
    "worker_init_fn": 10,
}
_EVALUATION = re.compile(r"(^|_|\b)(val|valid|validation|test|eval|evaluation|dev)(\d*|_|\b)", re.I)
_TRAINING = re.compile(r"(^|_|\b)(train|training|trn)(_|\b|\d)", re.I)


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

    script: Script
    call: cst.Call
    loops: list[Loop] = field(default_factory=list)
    name: str = ""
    """Of the variable that it is first kept in."""

    def given(self, name: str) -> cst.BaseExpression | None:
        """The value of one of DataLoader's arguments."""
        return argument(self.call, name, _PLACES.get(name))


@dataclass(frozen=True, eq=False)
class Wrap:
    """A model that is wrapped for data parallelism."""

    script: Script
    call: cst.Call

    @property
    def model(self) -> cst.BaseExpression | None:
        """What is wrapped."""
        return argument(self.call, "module", 0)


class Training:
    """The parts of the training in some scripts."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def named(self, *names: str) -> Iterator[tuple[Script, cst.Call]]:
        """Calls by what they name."""
        return self.project.calls(*names)

    def methods(self, *names: str) -> Iterator[tuple[Script, cst.Call]]:
        """Calls of methods by their last name, whatever the object."""
        for script in self.project.scripts:
            for call in script.named_last(*names):
                yield script, call

    @cached_property
    def framework(self) -> str | None:
        """What does part of the work by itself, if anything does."""
        for script in self.project.scripts:
            for scope in script.scopes.values():
                for binding in (b for bindings in scope.bindings.values() for b in bindings):
                    if binding.kind == "import" and (name := _framework(binding.path)):
                        return name
            # `transformers.Trainer(...)`, or a class made from it.
            used = [call.func for call in script.calls]
            for node in script.scopes:
                used += [b.value for b in node.bases] if isinstance(node, cst.ClassDef) else []
            for node in used:
                path = self.project.name(script, node)
                if path is not None and (name := _framework(path)):
                    return name
        return None

    @cached_property
    def distributed(self) -> bool:
        """Whether the scripts train on several replicas at all.

        A helper for it that a program imports and never names, as a converter of checkpoints does
        that takes one class from a large package, does not count.
        """
        if any(self.used(wrap.script, wrap.call) for wrap in self.wraps):
            return True
        names = (
            "torch.distributed.init_process_group",
            "torch.distributed.distributed_c10d.init_process_group",
            "torch.distributed.init_device_mesh",
            "torch.distributed.device_mesh.init_device_mesh",
            "torch.distributed.fsdp.fully_shard",
        )
        return any(self.used(script, call) for script, call in self.named(*names))

    def used(self, script: Script, node: cst.CSTNode) -> bool:
        """Whether the program may come to a place: no function around it is never named."""
        if script is self.project.scripts[0]:
            return True
        return not any(parent in self._unused for parent in script.above(node))

    @cached_property
    def _unused(self) -> set[cst.CSTNode]:
        """What modules hold that nothing which runs names; by names only, so rather too little."""
        first, *others = self.project.scripts
        if first.path.name == "__init__.py":
            return set()
        words = set(_words(first, first.tree))
        waiting: list[tuple[Script, cst.CSTNode]] = []
        for script in others:
            waiting += _started(script, statements(script.tree), words)
        while True:
            named = [(s, n) for s, n in waiting if _is_definition(n) and n.name.value in words]
            if not named:
                return {node for _, node in waiting}
            waiting = [place for place in waiting if place not in named]
            for script, node in named:
                if isinstance(node, cst.ClassDef):
                    for base in (*node.bases, *node.keywords):
                        words |= _words(script, base)
                    waiting += _started(script, statements(node.body), words)
                else:
                    words |= _words(script, node)

    @cached_property
    def wraps(self) -> list[Wrap]:
        """Models that are wrapped."""
        return [Wrap(script, call) for script, call in self.named(*WRAPPERS)]

    @cached_property
    def copies(self) -> list[Wrap]:
        """Those wrapped in DDP, with a copy of the model on every rank; FSDP cuts it instead."""
        name = self.project.name
        return [w for w in self.wraps if not (name(w.script, w.call.func) or "").endswith(_CUTS)]

    def wrapped(self, script: Script, node: cst.CSTNode) -> bool:
        """Whether a value may be a model in DDP; not before the wrap, in the same function."""
        calls = {wrap.call for wrap in self.copies}
        for origin in self.project.origins(script, node):
            made = origin.call
            while made is not None and made not in calls:
                made = _inner_call(made)
            if made is not None and not (origin.script is script and script.later(made, node)):
                return True
        return False

    @cached_property
    def loaders(self) -> list[Loader]:
        """DataLoaders, with the loops over them."""
        found = {}
        for script, call in self.named(*DATA_LOADER):
            loader = Loader(script, call)
            loader.name = self._kept_in(script, call)
            found[call] = loader
        for script in self.project.scripts:
            for node in script.order:
                if type(node) is cst.For:
                    self._note_loop(script, node, found)
        return list(found.values())

    def _note_loop(self, script: Script, node: cst.For, found: dict[cst.Call, Loader]) -> None:
        trains: bool | None = None
        for origin in self.project.origins(script, iterated(self.project, script, node.iter)):
            loader = found.get(origin.call) if origin.call is not None else None
            if loader is not None:
                if trains is None:
                    trains = self.project.reaches(script, node.body, is_backward)
                loader.loops.append(Loop(script, node, loader, trains))

    def _kept_in(self, script: Script, call: cst.Call) -> str:
        for parent in script.above(call):
            if isinstance(parent, cst.Assign):
                return script.code(parent.targets[0].target)
            if isinstance(parent, cst.AnnAssign):
                return script.code(parent.target)
            if isinstance(parent, cst.FunctionDef):
                return parent.name.value
            if isinstance(parent, cst.BaseCompoundStatement):
                return ""
        return ""

    def trains(self, loader: Loader) -> bool | None:
        """Whether a loader is for training; None if nothing tells."""
        if loader.loops:
            return any(loop.trains for loop in loader.loops)
        texts = [loader.name]
        data = loader.given("dataset")
        if data is not None:
            texts.append(loader.script.code(data))
            for origin in self.project.origins(loader.script, data):
                if origin.call is not None:
                    flag = constant(argument(origin.call, "train"))
                    if isinstance(flag, bool):
                        return flag
                    split = constant(argument(origin.call, "split"))
                    texts.append(split if isinstance(split, str) else "")
        for text in texts:
            if _EVALUATION.search(text):
                return False
            if _TRAINING.search(text):
                return True
        return None

    @cached_property
    def loops(self) -> list[Loop]:
        """All loops over batches."""
        return [loop for loader in self.loaders for loop in loader.loops]

    def guarded(self, script: Script, node: cst.CSTNode, depth: int = DEPTH) -> bool:
        """Whether only some ranks come here: an `if` on the rank, here or around every call."""
        before: cst.CSTNode = node
        function: cst.FunctionDef | None = None
        for parent in script.above(node):
            if isinstance(parent, cst.If) and before is not parent.test and asks_rank(parent.test):
                return True
            if isinstance(parent, cst.IfExp | cst.BooleanOperation) and asks_rank(parent):
                return True
            if isinstance(parent, cst.FunctionDef):
                function = parent
                if self._leaves_early(script, parent, node):
                    return True
                if any(asks_rank(d.decorator) for d in parent.decorators):
                    return True
                break
            before = parent
        if function is None or not depth:
            return False
        uses = list(self.project.uses.get(function, []))
        uses += [(h.script, h.call) for h in self.project.handed.get(function, [])]
        return bool(uses) and all(self.guarded(s, call, depth - 1) for s, call in uses)

    def _leaves_early(self, script: Script, function: cst.FunctionDef, node: cst.CSTNode) -> bool:
        """`if rank != 0: return` before the node."""
        for child in walk_shallow(function.body):
            if isinstance(child, cst.If) and script.order[child] < script.order[node]:
                ends = [n for n in walk(child.body) if isinstance(n, cst.Return | cst.Raise)]
                if ends and asks_rank(child.test) and not script.inside(node, child):
                    return True
        return False


def _started(
    script: Script, body: list[cst.CSTNode], words: set[str]
) -> list[tuple[Script, cst.CSTNode]]:
    """Note the names in what runs as soon as a module or class does, and give what does not."""
    waiting: list[tuple[Script, cst.CSTNode]] = []
    for node in body:
        alone = isinstance(node, cst.If) and "__name__" in script.code(node.test)
        if alone or _is_definition(node):
            waiting.append((script, node))
        else:
            words |= _words(script, node)
    return waiting


def _is_definition(node: cst.CSTNode) -> TypeGuard[cst.FunctionDef | cst.ClassDef]:
    """A function or class that runs when it is named; others may be called without a name."""
    if not isinstance(node, cst.FunctionDef | cst.ClassDef) or node.name.value.startswith("__"):
        return False
    return all(isinstance(d.decorator, cst.Name) for d in node.decorators)


@lru_cache(maxsize=50_000)
def _words(script: Script, node: cst.CSTNode) -> frozenset[str]:
    """The names in a statement; an import alone uses nothing, but may give another name."""
    if isinstance(node, cst.Import | cst.ImportFrom) and " as " not in script.code(node):
        return frozenset()
    if isinstance(node, cst.Assign) and script.code(node.targets[0].target) == "__all__":
        return frozenset()
    found = set()
    for part in walk(node):
        if isinstance(part, cst.Name):
            found.add(part.value)
        elif isinstance(part, cst.SimpleString):
            # `getattr(module, "Trainer")`; what is longer is a text.
            found.add(part.value.strip("\"'"))
    return frozenset(found)


def _inner_call(call: cst.Call) -> cst.Call | None:
    """`DDP(model)` of `DDP(model).to(device)` and of `torch.compile(DDP(model))`."""
    inner: cst.CSTNode | None = None
    if isinstance(call.func, cst.Attribute) and call.func.attr.value in ("to", "cuda", "train"):
        inner = call.func.value
    elif call.args and _EMPTY.code_for_node(call.func) in ("torch.compile", "compile"):
        inner = call.args[0].value
    return inner if isinstance(inner, cst.Call) else None


_RANK = re.compile(
    r"\b(\w*rank\w*|is_main\w*|is_master\w*|is_primary\w*|main_process|master_process|is_zero|"
    r"is_chief|is_local_main\w*|is_global_zero|should_save\w*|is_first\w*|is_logger\w*|master|"
    r"(on_|only_)(main|master)|(main|master)(_process)?_only)\b"
    # With a process for each GPU, the number of the GPU is the rank.
    r"|\b(local_?)?(gpu|device|proc|process)(_?(id|index|idx|num))?\s*(==|!=|>)\s*\d",
    re.I,
)
_EMPTY = cst.Module([])


def asks_rank(test: cst.CSTNode) -> bool:
    """Whether an expression asks which rank this is, by the names in it."""
    return _RANK.search(_EMPTY.code_for_node(test)) is not None


def is_backward(script: Script, node: cst.CSTNode) -> bool:
    """Whether this is a call of backward."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return False
    return node.func.attr.value in ("backward", "manual_backward")


def iterated(project: Project, script: Script, node: cst.BaseExpression) -> cst.BaseExpression:
    """What a loop really goes through: without enumerate, tqdm and the like."""
    while isinstance(node, cst.Call) and node.args and not node.args[0].star:
        name = project.name(script, node.func) or script.code(node.func)
        last = name.rsplit(".", 1)[-1]
        if last not in _AROUND:
            break
        node = node.args[0].value
    return node


_AROUND = {
    "enumerate",
    "tqdm",
    "tqdm_notebook",
    "track",
    "iter",
    "islice",
    "zip",
    "progress_bar",
    "log_every",
    "Bar",
    "list",
    "cycle",
}


def _framework(path: str) -> str | None:
    return next((name for start, name in FRAMEWORKS.items() if _begins(path, start)), None)


def _begins(path: str, start: str) -> bool:
    return path == start or path.startswith(start + ".")
