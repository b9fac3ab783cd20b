"""What a script is made of, for whoever rewrites it: models, optimizers, loaders, loops, places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import libcst as cst

from lockstep.convert.analysis.blocks import (
    block_of,
    calls_in,
    is_main_guard,
    names_in,
    out_of_branches,
    statement_of,
)
from lockstep.convert.analysis.members import container_of, elements, kind_of
from lockstep.source.gradients import is_backward, without_gradient
from lockstep.source.loaders import Loader, Loop
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import constant, dotted, parts, walk
from lockstep.source.turns import Act, training_loops

_WEIGHTS = ("parameters", "named_parameters")
_OPTIMIZER = re.compile(r"torch\.optim\.(?!lr_scheduler|swa_utils)")
_KEEPS = re.compile(r"opt", re.I)
_EVALUATES = re.compile(r"(^|[_.])(val|valid|validation|test|eval|dev)", re.I)


@dataclass(eq=False)
class Model:
    """A model that is trained."""

    script: Script
    name: str
    """Of the variable that holds it."""
    made: cst.CSTNode
    """The statement that first gives it to the variable."""
    ready: cst.CSTNode
    """The last statement that prepares it, before training begins."""
    calls: set[cst.Call] = field(default_factory=set)
    """What it may have been made by."""
    many: str = ""
    """`list` or `dict`, if the variable holds several models."""


@dataclass(eq=False)
class Optimizer:
    """An optimizer."""

    script: Script
    call: cst.Call
    models: list[Model] = field(default_factory=list)


class Parts:
    """The parts of one program that is to be rewritten; its first script is rewritten."""

    def __init__(self, training: Training) -> None:
        self.training, self.project = training, training.project
        self.script = self.project.scripts[0]
        self.lost: list[str] = []
        """What could not be followed."""

    # -- where things happen -------------------------------------------------------------------

    @cached_property
    def entry(self) -> list[cst.CSTNode]:
        """The statements that the program runs through from its start to its end."""
        body: list[cst.CSTNode] = list(self.script.tree.body)
        if any(self._works(statement) for statement in body):
            return body
        for statement in body:
            inner: list[cst.CSTNode] = [statement]
            if is_main_guard(statement):
                assert isinstance(statement, cst.If)
                inner = list(statement.body.body)
                if any(self._works(step) for step in inner):
                    return inner
            for step in inner:
                called = self._main(step)
                if called is not None:
                    return list(called.body.body)
            if is_main_guard(statement) and any(self._trains(s) for s in inner):
                return inner
        return body

    def _trains(self, statement: cst.CSTNode) -> bool:
        return not isinstance(statement, cst.FunctionDef | cst.ClassDef) and self.project.reaches(
            self.script, statement, is_backward
        )

    def _main(self, statement: cst.CSTNode) -> cst.FunctionDef | None:
        """`main()` or `sys.exit(main(args))`: the function that does all the work."""
        if not isinstance(statement, cst.SimpleStatementLine):
            return None
        for call in calls_in(statement):
            made = self.project.definition(self.script, call.func)
            if (
                made is not None
                and made[0] is self.script
                and isinstance(made[1], cst.FunctionDef)
                and self.script.class_of(made[1]) is None
                and self.project.reaches(made[0], made[1].body, is_backward)
            ):
                return made[1]
        return None

    def _works(self, statement: cst.CSTNode) -> bool:
        """Whether a statement at module level makes a model, an optimizer or data."""
        if isinstance(statement, cst.FunctionDef | cst.ClassDef) or is_main_guard(statement):
            return False
        made = {model.made for model in self.models if model.script is self.script}
        loaders = {x.call for x in self.training.loaders if x.script is self.script}
        return statement in made or any(call in loaders for call in calls_in(statement))

    @cached_property
    def beginning(self) -> cst.CSTNode:
        """The statement of the entry that the process group must be there for."""
        parsed = None
        for statement in self.entry:
            if isinstance(statement, cst.FunctionDef | cst.ClassDef):
                continue
            code = self.script.code(statement)
            if re.search(r"\bparse_(known_)?args\(", code):
                parsed = statement
        rest = self.entry
        if parsed is not None:
            rest = self.entry[self.entry.index(parsed) + 1 :]
        for statement in rest:
            if not _is_preface(statement):
                return statement
        return self.entry[-1]

    # -- models and optimizers -----------------------------------------------------------------

    @cached_property
    def optimizers(self) -> list[Optimizer]:
        """All optimizers, with the models whose weights they were given."""
        found = []
        for script in self.project.scripts:
            for call in script.calls:
                name = self.project.name(script, call.func) or script.code(call.func)
                kept = re.match(r"[\w.]*", script.code(statement_of(script, call)).strip())
                is_one = _OPTIMIZER.match(name) is not None or (
                    kept is not None
                    and _KEEPS.search(kept[0]) is not None
                    and any(_gives_weights(part) for part in walk(call))
                    and not script.code(call.func).rsplit(".", 1)[-1][:1].islower()
                )
                if is_one and call.args:
                    found.append(Optimizer(script, call, self._models_of(script, call)))
        return found

    @cached_property
    def models(self) -> list[Model]:
        """The models that are trained, each once."""
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
                if _gives_weights(part):
                    assert isinstance(part, cst.Call)
                    assert isinstance(part.func, cst.Attribute)
                    found += self._model(where, part.func.value)
                elif isinstance(part, cst.Name | cst.Attribute) and part in where.order:
                    origins = self.project.origins(where, part)
                    waiting += [(o.script, o.node) for o in origins if o.node is not part]
        return found

    def _model(self, script: Script, node: cst.CSTNode, depth: int = 6) -> list[Model]:
        """The model that an expression names, or names a part of."""
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
        many = kind_of(made[-1].value)
        if many and made[-1].value is not None:
            each = elements(self.project, script, made[-1].value)
            if not each or len(made) > 1:
                self.lost.append(f"{head} in line {script.place(first).start.line}")
                return []
            origins = [o for call in each for o in self.project.origins(script, call)]
            made_by = {o.call for o in origins if o.call is not None}
            return [Model(script, head, first, ready, made_by, many)]
        source = node if dotted(node) == head else made[-1].value
        assert source is not None
        calls = {o.call for o in self.project.origins(script, source) if o.call is not None}
        moved = self._moved(script, first, ready, calls)
        return [moved or Model(script, head, first, ready, calls)]

    def _moved(
        self, script: Script, made: cst.CSTNode, ready: cst.CSTNode, calls: set[cst.Call]
    ) -> Model | None:
        """`self.model = model.to(gpu)` in another function: only there it is where it trains."""
        if any(re.search(r"\.(to|cuda)\(", script.code(n)) for n in (made, ready)):
            return None
        for call in script.named_last("to", "cuda"):
            kept = script.parents.get(call)
            assert isinstance(call.func, cst.Attribute)
            if (
                not isinstance(kept, cst.Assign)
                or script.function_of(call) is script.function_of(made)
                or not isinstance(call.func.value, cst.Name)
            ):
                continue
            origins = self.project.origins(script, call.func.value)
            name = dotted(kept.targets[0].target)
            if name is not None and any(o.call in calls for o in origins):
                statement = statement_of(script, kept)
                return Model(script, name, statement, self._ready(script, name, statement), calls)
        return None

    def _kept(self, script: Script, function: cst.FunctionDef, name: str) -> list[Model]:
        """`Trainer(Net())`: the attribute that keeps a model which no variable held before."""
        owner = script.class_of(function)
        kept = script.scopes[owner].bindings if owner is not None else {}
        for attribute, bindings in kept.items():
            first = bindings[0]
            value: cst.CSTNode | None = first.value
            for place in first.index:
                value = next(iter(parts(value, place)), None) if value is not None else None
            base = value
            while isinstance(base, cst.Call) and isinstance(base.func, cst.Attribute):
                base = base.func.value
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
        """The last statement that has to do with the model before training begins."""
        block = block_of(script, made)
        last = made
        for statement in block[block.index(made) + 1 :]:
            if isinstance(statement, cst.FunctionDef | cst.ClassDef):
                continue
            if self.project.reaches(script, statement, is_backward) or (
                isinstance(statement, cst.For | cst.While)
                and not _only_sets_flags(script, statement)
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
        """Names in a statement, and in the methods of its own object that it calls."""
        yield from names_in(statement)
        for call in calls_in(statement):
            made = self.project.definition(script, call.func)
            if (dotted(call.func) or "").startswith("self.") and made is not None:
                yield from names_in(made[1].body)

    def is_model(self, script: Script, node: cst.CSTNode) -> Model | None:
        """The model that an expression is, wherever it was handed to."""
        name = dotted(node)
        if node not in script.order:
            return None
        for model in self._holding(script, node):
            return model
        if name is None:
            return None
        for model in self.models:
            if model.script is script and model.name == name and not model.many:
                scope = script.scope_of(model.made).find(name)
                here = script.scope_of(node).find(name)
                if name.startswith("self.") or scope is None or here is None or here[0] is scope[0]:
                    return model
        for origin in self.project.origins(script, node):
            for model in self.models:
                if origin.call is not None and origin.call in model.calls:
                    return model
        return None

    def _holding(self, script: Script, node: cst.CSTNode) -> Iterator[Model]:
        """The models among which an expression is one: `models["a"]`, `for model in models`."""
        many = [model for model in self.models if model.many]
        found = container_of(self.project, script, node) if many else None
        for model in many:
            if found is not None and model.script is found[0] and model.name == dotted(found[1]):
                yield model

    # -- loaders and loops ---------------------------------------------------------------------

    @cached_property
    def trained_on(self) -> list[Loader]:
        """Loaders of training data."""
        found = self.training.loaders
        return [x for x in found if x.trains or (x.trains is None and self._is_drawn_from(x))]

    def _is_drawn_from(self, loader: Loader) -> bool:
        """`next(batches)` in a loop that comes by a backward, of `batches = iter(loader)`."""
        script = self.script
        held: set[str | None] = set()
        for call in script.calls:
            if dotted(call.func) != "iter" or len(call.args) != 1:
                continue
            origins = self.project.origins(script, call.args[0].value)
            kept = script.parents.get(call)
            if any(o.call is loader.call for o in origins) and isinstance(kept, cst.Assign):
                held |= {dotted(target.target) for target in kept.targets}
        return any(
            dotted(call.func) == "next"
            and dotted(call.args[0].value) in held - {None}
            and not without_gradient(script, call)
            and any(
                isinstance(loop, cst.For | cst.While)
                and self.project.reaches(script, loop.body, is_backward)
                for loop in _loops_here(script, call)
            )
            for call in script.calls
            if call.args
        )

    def only_looks(self, loader: Loader) -> bool:
        """Whether a loop that trains on others goes through this one to evaluate."""
        shuffle = loader.given("shuffle")
        shuffled = shuffle is not None and constant(shuffle) is not False
        if shuffled or not _EVALUATES.search(loader.name):
            return False
        loops = {loop.node for loop in self.loops_of(loader)}
        others = [x for x in self.trained_on if x is not loader]
        return bool(loops) and loops <= {loop.node for x in others for loop in self.loops_of(x)}

    @cached_property
    def evaluated_on(self) -> list[Loader]:
        """Loaders of data that are only looked at."""
        return [x for x in self.training.loaders if x.trains is False and x.loops]

    @cached_property
    def turns(self) -> list[tuple[Script, cst.For | cst.While, list[Act]]]:
        """Loops that come by a backward."""
        return training_loops(self.training)

    def loops_of(self, loader: Loader) -> Iterator[Loop]:
        """The loops that train on a loader."""
        return (loop for loop in loader.loops if loop.trains)


def _loops_here(script: Script, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The loops around a node in its own function."""
    for parent in script.above(node):
        if isinstance(parent, cst.FunctionDef):
            return
        if isinstance(parent, cst.For | cst.While):
            yield parent


def _gives_weights(node: cst.CSTNode) -> bool:
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value in _WEIGHTS
    )


def _only_sets_flags(script: Script, loop: cst.For | cst.While) -> bool:
    """A loop that freezes weights, or initialises them."""
    return re.search(r"requires_grad|init", script.code(loop)) is not None


def _is_preface(statement: cst.CSTNode) -> bool:
    """A docstring, an import, a definition, a constant or a `global`."""
    if isinstance(statement, cst.FunctionDef | cst.ClassDef):
        return True
    if isinstance(statement, cst.Try | cst.If):
        return imports(statement)
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    for part in statement.body:
        if isinstance(part, cst.Import | cst.ImportFrom | cst.Global | cst.Nonlocal | cst.Pass):
            continue
        if isinstance(part, cst.Expr) and isinstance(
            part.value, cst.SimpleString | cst.ConcatenatedString
        ):
            continue
        if isinstance(part, cst.Assign | cst.AnnAssign) and not any(
            isinstance(n, cst.Call) for n in walk(part)
        ):
            continue
        return False
    return True


def imports(statement: cst.CSTNode) -> bool:
    """Whether a statement, or one inside it, imports something."""
    return any(isinstance(part, cst.Import | cst.ImportFrom) for part in walk(statement))
