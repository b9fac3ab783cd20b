"""The models that a program trains, and the optimizers that are given their weights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import libcst as cst

from lockstep.convert.analysis.blocks import (
    bindings_of,
    block_of,
    calls_in,
    last_name,
    names_in,
    out_of_branches,
    receiver,
    statement_of,
)
from lockstep.source.gradients import is_backward
from lockstep.source.project import Project
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import EACH, argument, dotted, parts, walk

_WEIGHTS = ("parameters", "named_parameters")
_OPTIMIZER = re.compile(r"torch\.optim\.(?!lr_scheduler|swa_utils)")
_KEEPS = re.compile(r"opt", re.I)


def container_kind(value: cst.CSTNode) -> str:
    """Return `list` or `dict`, if a value is written as one."""
    if isinstance(value, cst.List | cst.ListComp):
        return "list"
    return "dict" if isinstance(value, cst.Dict | cst.DictComp) else ""


def elements(project: Project, script: Script, value: cst.CSTNode) -> list[cst.Call]:
    """Return the calls that make the elements; [] unless all of them are models made in place."""
    found = []
    for element in parts(value, EACH):
        name = project.name(script, element.func) if isinstance(element, cst.Call) else None
        if not isinstance(element, cst.Call) or (name or "").endswith("Loss"):
            return []
        found.append(element)
    return found


def container_of(
    project: Project, script: Script, node: cst.CSTNode, depth: int = 4
) -> tuple[Script, cst.CSTNode] | None:
    """Return `models`, for `models[0]`, `for model in models`, or a parameter that is given one."""
    if isinstance(node, cst.Subscript):
        return script, node.value
    if not isinstance(node, cst.Name) or not depth:
        return None
    for binding in bindings_of(script, node):
        loop = binding.node
        if isinstance(loop, cst.For | cst.CompFor):
            around = loop if isinstance(loop, cst.For) else script.parents[loop]
            if script.inside(node, around):
                inner = _iterated(loop.iter, binding.index)
                return (script, inner) if inner is not None else None
        elif binding.kind == "parameter":
            function = script.function_of(loop)
            given = project.arguments(script, function, node.value) if function else []
            for where, value in given:
                outer = container_of(project, where, value, depth - 1)
                if outer is not None:
                    return outer
    return None


def _iterated(node: cst.CSTNode, index: tuple[int | str, ...]) -> cst.CSTNode | None:
    """Return what a loop takes its element from: one argument of `zip(models, optimizers)`."""
    if not isinstance(node, cst.Call):
        return node if not index and dotted(node) is not None else None
    owner, name = receiver(node), dotted(node.func)
    if owner is not None and not node.args:
        wanted = {"items": (1,), "values": ()}.get(last_name(node))
        return owner if wanted == index else None
    inner = None
    if name == "enumerate" and index[:1] == (1,):
        inner = argument(node, "iterable", 0)
    elif name == "zip" and index and isinstance(index[0], int):
        inner = argument(node, "", index[0])
    return _iterated(inner, index[1:]) if inner is not None else None


@dataclass(eq=False)
class Model:
    """A model that is trained."""

    script: Script
    name: str
    """Name of the variable that holds it."""
    made: cst.CSTNode
    """The statement that first assigns it to the variable."""
    ready: cst.CSTNode
    """The last statement that prepares it before training begins."""
    calls: set[cst.Call] = field(default_factory=set)
    """The calls that may have made it."""
    many: str = ""
    """`list` or `dict`, if the variable holds several models."""


@dataclass(eq=False)
class Optimizer:
    """An optimizer."""

    script: Script
    call: cst.Call
    models: list[Model] = field(default_factory=list)


class Models:
    """The models and optimizers of one program."""

    def __init__(self, training: Training) -> None:
        self.training, self.project = training, training.project
        self.script = self.project.scripts[0]
        self.lost: list[str] = []
        """Names that could not be followed to a model."""

    @cached_property
    def optimizers(self) -> list[Optimizer]:
        """Return all optimizers, with the models whose weights they update."""
        found = []
        for script in self.project.scripts:
            for call in script.calls:
                name = self.project.title(script, call.func)
                kept = re.match(r"[\w.]*", script.code(statement_of(script, call)).strip())
                is_one = _OPTIMIZER.match(name) is not None or (
                    kept is not None
                    and _KEEPS.search(kept[0]) is not None
                    and any(receiver(part, *_WEIGHTS) is not None for part in walk(call))
                    and not script.code(call.func).rsplit(".", 1)[-1][:1].islower()
                )
                if is_one and call.args:
                    found.append(Optimizer(script, call, self._models_of(script, call)))
        return found

    @cached_property
    def models(self) -> list[Model]:
        """Return the models that are trained, each once."""
        every = {}
        for optimizer in self.optimizers:
            for model in optimizer.models:
                every[model.script, model.name, model.made] = model
        return list(every.values())

    def _models_of(self, script: Script, call: cst.Call) -> list[Model]:
        found: list[Model] = []
        seen: set[cst.CSTNode] = set()
        waiting: list[tuple[Script, cst.CSTNode]] = [(script, a.value) for a in call.args[:1]]
        waiting += [
            (script, a.value) for a in call.args[1:] if a.keyword and "param" in a.keyword.value
        ]
        while waiting:
            where, node = waiting.pop()
            if node in seen or len(seen) > 200:
                continue
            seen.add(node)
            for part in walk(node):
                owner = receiver(part, *_WEIGHTS)
                if owner is not None:
                    found += self._model(where, owner)
                elif isinstance(part, cst.Name | cst.Attribute) and part in where.order:
                    origins = self.project.origins(where, part)
                    waiting += [(o.script, o.node) for o in origins if o.node is not part]
        return found

    def _model(self, script: Script, node: cst.CSTNode, depth: int = 6) -> list[Model]:
        """Return the model that an expression names, whole or in part."""
        while isinstance(node, cst.Subscript | cst.Call):
            node = node.value if isinstance(node, cst.Subscript) else node.func
        name = dotted(node)
        if name is None or not depth:
            return []
        head = ".".join(name.split(".")[: 2 if name.startswith("self.") else 1])
        if head == "self":
            # `self.parameters()`: the module makes its own optimizer.
            return []
        found = script.scope_of(node).find(head)
        if found is None and head.startswith("self."):
            owner = script.class_of(node)
            kept = script.scopes[owner].bindings.get(head, []) if owner else []
            found = (script.scopes[owner], kept) if owner and kept else None
        if found is None:
            self.lost.append(f"{head} in line {script.place(node).start.line}")
            return []
        bindings = found[1]
        given = [b for b in bindings if b.kind == "parameter"]
        made = [b for b in bindings if b.kind == "assign" and b.value is not None]
        if given and not made:
            function = script.function_of(given[0].node)
            assert function is not None
            results = []
            for where, value in self.project.arguments(script, function, head):
                results += self._model(where, value, depth - 1)
                if not results and isinstance(value, cst.Call):
                    results = self._kept(script, function, head)
            return results
        if not made:
            inner = container_of(self.project, script, node)
            several = self._model(*inner, depth - 1) if inner is not None else []
            return [model for model in several if model.many]
        if (
            made[0].kind == "assign"
            and isinstance(made[0].value, cst.Name)
            and not head.startswith("self.")
        ):
            aliased = self._model(script, made[0].value, depth - 1)
            if aliased and len(made) == 1:
                return aliased
        first = out_of_branches(script, statement_of(script, made[0].node))
        ready = self._ready(script, head, first)
        last = made[-1].value
        assert last is not None
        many = container_kind(last)
        if many:
            each = elements(self.project, script, last)
            if not each or len(made) > 1:
                self.lost.append(f"{head} in line {script.place(first).start.line}")
                return []
            origins = [o for call in each for o in self.project.origins(script, call)]
            made_by = {o.call for o in origins if o.call is not None}
            return [Model(script, head, first, ready, made_by, many)]
        source = node if dotted(node) == head else last
        calls = {o.call for o in self.project.origins(script, source) if o.call is not None}
        moved = self._moved(script, first, ready, calls)
        return [moved or Model(script, head, first, ready, calls)]

    def _moved(
        self, script: Script, made: cst.CSTNode, ready: cst.CSTNode, calls: set[cst.Call]
    ) -> Model | None:
        """Return the model of `self.model = model.to(gpu)` in another function, where it trains."""
        if any(re.search(r"\.(to|cuda)\(", script.code(n)) for n in (made, ready)):
            return None
        for call in script.named_last("to", "cuda"):
            kept, owner = script.parents.get(call), receiver(call)
            elsewhere = script.function_of(call) is not script.function_of(made)
            if isinstance(kept, cst.Assign) and isinstance(owner, cst.Name) and elsewhere:
                origins = self.project.origins(script, owner)
                name = dotted(kept.targets[0].target)
                if name is not None and any(o.call in calls for o in origins):
                    statement = statement_of(script, kept)
                    ready = self._ready(script, name, statement)
                    return Model(script, name, statement, ready, calls)
        return None

    def _kept(self, script: Script, function: cst.FunctionDef, name: str) -> list[Model]:
        """Return the model that an attribute keeps after `Trainer(Net())`, without a variable."""
        owner = script.class_of(function)
        kept = script.scopes[owner].bindings if owner is not None else {}
        for attribute, bindings in kept.items():
            first = bindings[0]
            value: cst.CSTNode | None = first.value
            for place in first.index:
                value = next(iter(parts(value, place)), None) if value is not None else None
            base = value
            while (inner := receiver(base)) is not None:
                base = inner
            if value is None or not isinstance(base, cst.Name) or base.value != name:
                continue
            if attribute.startswith("self.") and script.function_of(first.node) is function:
                made = statement_of(script, first.node)
                origins = self.project.origins(script, base)
                calls = {o.call for o in origins if o.call is not None}
                ready = self._ready(script, attribute, made)
                return [Model(script, attribute, made, ready, calls)]
        return []

    def _ready(self, script: Script, name: str, made: cst.CSTNode) -> cst.CSTNode:
        """Return the last statement that mentions the model before training begins."""
        block = block_of(script, made)
        last = made
        for statement in block[block.index(made) + 1 :]:
            if isinstance(statement, cst.FunctionDef | cst.ClassDef):
                continue
            if self.project.reaches(script, statement, is_backward) or (
                # Loops may also freeze or initialise weights.
                isinstance(statement, cst.For | cst.While)
                and not re.search(r"requires_grad|init", script.code(statement))
            ):
                break
            for _, other in self._named(script, statement):
                tail = other.removeprefix(name)
                named = other.startswith(name) and tail[:1] in ("", ".")
                weights = tail.split(".")[-1] in _WEIGHTS and not isinstance(statement, cst.For)
                if named and not weights:
                    last = statement
        if isinstance(last, cst.SimpleStatementLine) and any(
            isinstance(part, cst.Return) for part in last.body
        ):
            last = block[block.index(last) - 1]
        return last

    def _named(self, script: Script, statement: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, str]]:
        """Yield the names in a statement, and in the methods of `self` that it calls."""
        yield from names_in(statement)
        for call in calls_in(statement):
            made = self.project.definition(script, call.func)
            if (dotted(call.func) or "").startswith("self.") and made is not None:
                yield from names_in(made[1].body)

    def is_model(self, script: Script, node: cst.CSTNode) -> Model | None:
        """Return the model that an expression stands for, in any function that it was handed to."""
        name = dotted(node)
        if node not in script.order:
            return None
        many = [model for model in self.models if model.many]
        # `models["a"]`, or model in `for model in models`
        found = container_of(self.project, script, node) if many else None
        for model in many:
            if found is not None and model.script is found[0] and model.name == dotted(found[1]):
                return model
        if name is None:
            return None
        for model in self.models:
            if model.script is script and model.name == name and not model.many:
                scope = script.scope_of(model.made).find(name)
                here = script.scope_of(node).find(name)
                if name.startswith("self.") or scope is None or here is None or here[0] is scope[0]:
                    return model
        calls = [o.call for o in self.project.origins(script, node) if o.call is not None]
        return next((m for call in calls for m in self.models if call in m.calls), None)
