"""Find what a loop over batches sums up on its rank, and what the program does with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from lockstep.source.collectives import is_reduction
from lockstep.source.gradients import stops_gradients
from lockstep.source.loaders import Loader, Loop
from lockstep.source.name_uses import assigned, base, mentions, targets
from lockstep.source.outputs import NOTES
from lockstep.source.project import DEPTH
from lockstep.source.ranks import asks_rank
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import constant, dotted, walk, walk_shallow

_NO_METRIC = re.compile(r"time|elapsed|duration|seconds|step|iter(?!_?loss)|num_batch", re.I)
_KEEPS = {"append", "extend", "update", "add", "insert", "format", "join", "save", "dump", "dumps"}
_LOCAL = ("torch", "numpy", "math", "sklearn", "scipy", "statistics", "json", "time", "pandas")
_PLAIN = re.compile(
    r"float|int|str|bool|abs|sum|len|max|min|round|list|tuple|dict|set|zip|sorted|enumerate|range|"
    r"map|filter|all|any|format|isinstance|repr"
)


@dataclass(eq=False)
class Tally:
    """Names that a loop adds to, followed to where they are divided, shown or compared."""

    training: Training
    loop: Loop
    names: set[str] = field(default_factory=set)
    """Names that the loop adds to."""
    reduced: bool = False
    """Whether something combines the values of the ranks."""
    known: bool = True
    """Whether all uses of the values can be seen."""
    uses: list[tuple[Script, cst.CSTNode]] = field(default_factory=list)
    """Where they are printed, logged, compared, or passed to a scheduler."""
    divisions: list[tuple[Script, cst.CSTNode, cst.BaseExpression]] = field(default_factory=list)
    """Where they are divided, and by what."""
    functions: list[tuple[Script, cst.CSTNode]] = field(default_factory=list)
    """Functions in which they were followed."""

    def __post_init__(self) -> None:
        self.project = self.training.project
        script, node = self.loop.script, self.loop.node
        self._collect(script, node.body)
        if self.names:
            self._follow(script, node, set(self.names), set(), DEPTH)

    def _collect(self, script: Script, body: cst.BaseSuite) -> None:
        for node in walk_shallow(body):
            if isinstance(node, cst.AugAssign) and constant(node.value) is ...:
                if isinstance(node.operator, cst.AddAssign):
                    self._add(base(node.target))
                    if isinstance(node.value, cst.BinaryOperation):
                        self._divided(script, node.value)
            elif isinstance(node, cst.Assign) and isinstance(node.value, cst.BinaryOperation):
                # total = total + ...
                target = dotted(node.targets[0].target)
                if target is not None and target == dotted(node.value.left):
                    self._add(target)
            elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
                owner = dotted(node.func.value)
                if owner is not None and node.func.attr.value in ("append", "extend", "update"):
                    self._keep(script, node.func.value, owner)
            if self._reduces(script, node) or self._hidden(script, node):
                self.reduced = True

    def _hidden(self, script: Script, node: cst.CSTNode) -> bool:
        """Return whether a called function contains a reduction."""
        if not isinstance(node, cst.Call):
            return False
        made = self.project.definition(script, node.func)
        return made is not None and self.project.reaches(made[0], made[1].body, self._reduces)

    def _reduces(self, script: Script, node: cst.CSTNode) -> bool:
        return is_reduction(self.project, script, node)

    def _add(self, name: str | None) -> None:
        if name is not None and not _NO_METRIC.search(name):
            self.names.add(name)

    def _keep(self, script: Script, owner: cst.BaseExpression, name: str) -> None:
        """Note an object that keeps values: a list, a known meter, or one that may do more."""
        origins = self.project.origins(script, owner)
        if any(isinstance(origin.node, cst.List) for origin in origins):
            self._add(name)
            return
        for origin in origins:
            called = origin.call and self.project.title(origin.script, origin.call.func)
            if called and re.search(r"tqdm|[Pp]rogress|\bBar", called):
                continue
            if called and called.endswith("AverageMeter") and origin.call is not None:
                made = self.project.definition(origin.script, origin.call.func)
                inside = walk(made[1].body) if made else ()
                if made and any(self._reduces(made[0], node) for node in inside):
                    self.known = False
                self._add(name)
            elif not self.loop.trains:
                self.known = False

    def _follow(
        self,
        script: Script,
        start: cst.CSTNode,
        names: set[str],
        calls: set[cst.CSTNode],
        depth: int,
    ) -> None:
        """Follow names from `start` to the end of its function, and on to its callers."""
        function = script.function_of(start)
        self.functions.append((script, function or script.tree))
        returns: list[cst.Return] = []
        around = set(_up_to_statement(script, start)) if start in calls else set()
        for node in walk_shallow(function.body if function else script.tree):
            late = script.order[node] > script.order[start] and not script.inside(node, start)
            if not late and node not in around:
                self.reduced |= self._elsewhere(script, node)
                continue
            if isinstance(node, cst.Call):
                self._called(script, node, names, calls)
            elif isinstance(node, cst.Comparison):
                self._compared(script, node, names, calls)
            elif isinstance(node, cst.BinaryOperation):
                if mentions(node.left, names, calls):
                    self._divided(script, node)
            elif isinstance(node, cst.AugAssign):
                divides = isinstance(node.operator, cst.DivideAssign)
                if divides and mentions(node.target, names, calls):
                    self.divisions.append((script, node, node.value))
            if isinstance(node, cst.Return) and node.value is not None:
                if mentions(node.value, names, calls):
                    returns.append(node)
            else:
                names |= assigned(node, names, calls)
        if function is None or not returns or not depth:
            return
        # A decorator may change what is returned.
        self.known &= all(stops_gradients(script, d.decorator) for d in function.decorators)
        for where, call in self.project.uses.get(function, []):
            if self._is_for_another(where, call):
                continue
            self._returned(where, call, returns, names, calls, depth - 1)

    def _is_for_another(self, script: Script, call: cst.Call) -> bool:
        """Return whether a call passes loaders, but not the one of this loop."""
        origins = [o.node for a in call.args for o in self.project.origins(script, a.value)]
        made = {x.place[1] for x in self.training.loaders}
        loaders = [node for node in origins if node in made]
        return bool(loaders) and self.loop.loader.place[1] not in loaders

    def _returned(
        self,
        script: Script,
        call: cst.Call,
        returns: list[cst.Return],
        names: set[str],
        calls: set[cst.CSTNode],
        depth: int,
    ) -> None:
        statement = script.statement_of(call)
        got: set[str] = set()
        if not isinstance(statement, cst.Assign) or statement.value is not call:
            self._follow(script, call, got, {call}, depth)
            return
        target = statement.targets[0].target
        for back in returns:
            if isinstance(target, cst.Tuple) and isinstance(back.value, cst.Tuple):
                pairs = zip(target.elements, back.value.elements, strict=False)
                found = [t.value for t, v in pairs if mentions(v.value, names, calls)]
                got |= {name for t in found for name in targets(t)}
            else:
                got |= targets(target)
        self._follow(script, statement, got, set(), depth)

    def _elsewhere(self, script: Script, node: cst.CSTNode) -> bool:
        """Return whether a reduction may cover other values, such as `meters.synchronize()`."""
        if not self._reduces(script, node) or self._in_other(script, node):
            return False
        assert isinstance(node, cst.Call)
        # Reductions of torch name their values in the call.
        name = self.project.name(script, node.func) or ""
        return not name.startswith("torch.distributed")

    def _in_other(self, script: Script, node: cst.CSTNode) -> bool:
        """Return whether a node is in another training loop, and reduces its values."""
        loops = [x.node for x in self.training.loops if x.trains and x.node is not self.loop.node]
        return any(script.inside(node, other) for other in loops)

    def _called(
        self, script: Script, call: cst.Call, names: set[str], calls: set[cst.CSTNode]
    ) -> None:
        touched = mentions(call, names, calls)
        # A method may reduce attributes of its object.
        own = script.code(call.func).startswith("self.") and any(n[:5] == "self." for n in names)
        self.reduced |= self._elsewhere(script, call) or (own and self._hidden(script, call))
        self.reduced |= touched and self._reduces(script, call)
        if not touched or call in calls:
            return
        last = script.code(call.func).rsplit(".", 1)[-1]
        if self._is_local(script, call) or mentions(call.func, names, calls):
            return
        if NOTES.match(last):
            # Code that prints the rank beside the value knows whose value it is.
            if not any(asks_rank(arg.value) for arg in call.args):
                self.uses.append((script, call))
        elif last == "step" or "stop" in last.lower():
            self.uses.append((script, call))
        elif last not in _KEEPS:
            self.reduced |= self._hidden(script, call)
            self.known &= self.project.function(script, call.func) is not None

    def _is_local(self, script: Script, call: cst.Call) -> bool:
        name = self.project.title(script, call.func)
        return name.split(".")[0] in _LOCAL or _PLAIN.fullmatch(name) is not None

    def _compared(
        self, script: Script, node: cst.Comparison, names: set[str], calls: set[cst.CSTNode]
    ) -> None:
        sides = [node.left, *(part.comparator for part in node.comparisons)]
        if any(constant(side) is not ... for side in sides) or not mentions(node, names, calls):
            return
        ordered = cst.LessThan | cst.GreaterThan | cst.LessThanEqual | cst.GreaterThanEqual
        checked = isinstance(script.statement_of(node), cst.Assert)
        if not checked and all(isinstance(part.operator, ordered) for part in node.comparisons):
            self.uses.append((script, node))

    def _divided(self, script: Script, node: cst.BinaryOperation) -> None:
        if isinstance(node.operator, cst.Divide):
            self.divisions.append((script, node, node.right))


def tallies(training: Training, loader: Loader) -> Iterator[Tally]:
    """Yield what the loops over a loader sum up."""
    for loop in loader.loops:
        tally = Tally(training, loop)
        if tally.names or tally.divisions:
            yield tally


def _up_to_statement(script: Script, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield the expressions around a node, and its statement if that is a simple one."""
    for parent in script.above(node):
        if isinstance(parent, cst.BaseCompoundStatement | cst.BaseSuite | cst.SimpleStatementLine):
            return
        yield parent
