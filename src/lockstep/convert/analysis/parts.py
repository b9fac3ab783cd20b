"""The parts of a script that rewrites work on: models, optimizers, loaders, loops, places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

import libcst as cst

from lockstep.convert.analysis.blocks import assigned_to, calls_in, imports, is_main_guard
from lockstep.convert.analysis.models import Models
from lockstep.source.gradients import is_backward, without_gradient
from lockstep.source.loaders import Loader, Loop
from lockstep.source.script import Script
from lockstep.source.training_loops import Act, training_loops
from lockstep.source.tree import constant, dotted, walk

_PARSES = re.compile(r"\bparse_(known_)?args\(")
_TEXT = cst.SimpleString | cst.ConcatenatedString
_EVALUATES = re.compile(r"(^|[_.])(val|valid|validation|test|eval|dev)", re.I)


class Parts(Models):
    """The parts of one program; lockstep rewrites its first script."""

    @cached_property
    def entry(self) -> list[cst.CSTNode]:
        """Return the statements that the program runs through from start to end."""
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
        """Return the function that does all the work, for `main()` or `sys.exit(main(args))`."""
        if not isinstance(statement, cst.SimpleStatementLine):
            return None
        for call in calls_in(statement):
            made = self.project.function(self.script, call.func)
            if (
                made is not None
                and made[0] is self.script
                and self.script.class_of(made[1]) is None
                and self.project.reaches(made[0], made[1].body, is_backward)
            ):
                return made[1]
        return None

    def _works(self, statement: cst.CSTNode) -> bool:
        """Return whether a statement at module level makes a model, an optimizer or data."""
        if isinstance(statement, cst.FunctionDef | cst.ClassDef) or is_main_guard(statement):
            return False
        made = {model.made for model in self.models if model.script is self.script}
        loaders = {x.call for x in self.training.loaders if x.script is self.script}
        return statement in made or any(call in loaders for call in calls_in(statement))

    @cached_property
    def beginning(self) -> cst.CSTNode:
        """Return the first entry statement that needs the process group."""
        rest = self.entry
        for number, statement in enumerate(self.entry):
            inner = isinstance(statement, cst.FunctionDef | cst.ClassDef)
            if not inner and _PARSES.search(self.script.code(statement)):
                rest = self.entry[number + 1 :]
        return next((s for s in rest if not _is_preface(s)), self.entry[-1])

    @cached_property
    def trained_on(self) -> list[Loader]:
        """Return the loaders of training data."""
        found = self.training.loaders
        return [x for x in found if x.trains or (x.trains is None and self._is_drawn_from(x))]

    def _is_drawn_from(self, loader: Loader) -> bool:
        """Return whether a loop with a backward calls `next` on an iterator of the loader."""
        script = self.script
        held: set[str | None] = set()
        for call in script.calls:
            kept = script.parents.get(call)
            if dotted(call.func) == "iter" and len(call.args) == 1 and isinstance(kept, cst.Assign):
                origins = self.project.origins(script, call.args[0].value)
                if any(o.call is loader.call for o in origins):
                    held |= {dotted(target) for target in assigned_to(kept)}
        return any(
            dotted(call.func) == "next"
            and dotted(call.args[0].value) in held - {None}
            and not without_gradient(script, call)
            and any(
                self.project.reaches(script, loop.body, is_backward)
                for loop in _loops_here(script, call)
            )
            for call in script.calls
            if call.args
        )

    def only_looks(self, loader: Loader) -> bool:
        """Return whether a loop that trains on other data uses this loader only to evaluate."""
        shuffle = loader.given("shuffle")
        shuffled = shuffle is not None and constant(shuffle) is not False
        if shuffled or not _EVALUATES.search(loader.name):
            return False
        loops = {loop.node for loop in self.loops_of(loader)}
        others = [x for x in self.trained_on if x is not loader]
        return bool(loops) and loops <= {loop.node for x in others for loop in self.loops_of(x)}

    @cached_property
    def evaluated_on(self) -> list[Loader]:
        """Return the loaders that are only evaluated on."""
        return [x for x in self.training.loaders if x.trains is False and x.loops]

    @cached_property
    def turns(self) -> list[tuple[Script, cst.For | cst.While, list[Act]]]:
        """Return the loops that reach a backward."""
        return training_loops(self.training)

    def loops_of(self, loader: Loader) -> Iterator[Loop]:
        """Yield the loops that train on a loader."""
        return (loop for loop in loader.loops if loop.trains)


def _loops_here(script: Script, node: cst.CSTNode) -> Iterator[cst.For | cst.While]:
    """Yield the loops around a node within its function."""
    for parent in script.above(node):
        if isinstance(parent, cst.FunctionDef):
            return
        if isinstance(parent, cst.For | cst.While):
            yield parent


def _is_preface(statement: cst.CSTNode) -> bool:
    """Return whether a statement is a docstring, import, definition, constant or `global`."""
    if isinstance(statement, cst.FunctionDef | cst.ClassDef):
        return True
    if isinstance(statement, cst.Try | cst.If):
        return imports(statement)
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    return all(
        isinstance(part, cst.Import | cst.ImportFrom | cst.Global | cst.Nonlocal | cst.Pass)
        or (isinstance(part, cst.Expr) and isinstance(part.value, _TEXT))
        or (
            isinstance(part, cst.Assign | cst.AnnAssign)
            and not any(isinstance(n, cst.Call) for n in walk(part))
        )
        for part in statement.body
    )
