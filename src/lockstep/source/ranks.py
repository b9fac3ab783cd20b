"""Find which ranks reach a place, by conditions that ask for the rank."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.source.conditions import ends
from lockstep.source.project import DEPTH, Project
from lockstep.source.script import Script, Use
from lockstep.source.tree import code, constant, dotted, walk

_ASKS = re.compile(
    r"\b(\w*rank\w*|is_main\w*|is_\w*master\w*|nr|is_primary\w*|main_process|main_proc|master_process|is_zero|"
    r"is_chief|is_local_main\w*|is_global_zero|should_save\w*|is_first\w*|is_logger\w*|master|"
    r"(on_|only_)(main|master)|(main|master)(_process)?_only)\b"
    # With one process per GPU, the number of the GPU is the rank.
    r"|\b(local_?)?(gpu|device|proc|process)(_?(id|index|idx|num))?\s*(==|!=|>)\s*\d",
    re.I,
)
_RANK = re.compile(
    r"(get_)?(global|local|world|node|dist|ddp|my|this|process|proc|_)*rank(_id)?", re.I
)
_MAIN = re.compile(
    r"_?(is_)?(local_)?(main|master|primary|chief|rank_?(zero|0))(_process|_rank|_proc)?"
)
"""Names of the rank itself, and of flags that are true on one rank only."""
_ALONE = re.compile(r"initialized|distributed|available|world|ddp|multi|gpu", re.I)
_NO = re.compile(r"\bnot\b|== *1\b|< *2\b|<= *1\b")


def asks_rank(test: cst.CSTNode) -> bool:
    """Return whether an expression asks which rank this is, judging by its names."""
    return _ASKS.search(code(test)) is not None


def divides(test: cst.CSTNode) -> bool:
    """Return whether a condition is true on some ranks and false on others."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return divides(test.expression) or _is_rank(test.expression)
    if isinstance(test, cst.BooleanOperation):
        parts = (test.left, test.right)
        divided = [divides(part) for part in parts]
        rest = [code(p) for p, t in zip(parts, divided, strict=True) if not t]
        if isinstance(test.operator, cst.And):
            # `rank == 0 and world_size == 1`: there are no other ranks.
            return any(divided) and not any(_ALONE.search(r) and _NO.search(r) for r in rest)
        return any(divided) and all(_ALONE.search(r) for r in rest)
    if isinstance(test, cst.Comparison):
        return _compares(test)
    name = dotted(test.func if isinstance(test, cst.Call) and not test.args else test)
    return name is not None and _MAIN.fullmatch(name.rsplit(".", 1)[-1]) is not None


def _compares(test: cst.Comparison) -> bool:
    """Return whether a test is `rank == 0` or `rank > 0`; not `rank >= 0`, which always holds."""
    if len(test.comparisons) != 1 or not _is_rank(test.left):
        return False
    operator, other = test.comparisons[0].operator, test.comparisons[0].comparator
    if isinstance(other, cst.Tuple | cst.List | cst.Set):
        # `rank in (-1, 0)`, or `rank not in {-1, 0}`
        return any(constant(e.value) == 0 for e in other.elements)
    value = constant(other)
    if type(value) is not int or value < 0:
        return False
    if isinstance(operator, cst.Equal | cst.NotEqual | cst.GreaterThan):
        return True
    return isinstance(operator, cst.LessThan | cst.GreaterThanEqual) and value > 0


def _is_rank(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo):
        return _is_rank(node.left)
    if isinstance(node, cst.Call):
        node = node.func
    name = dotted(node)
    return name is not None and _RANK.fullmatch(name.rsplit(".", 1)[-1]) is not None


def guarded(project: Project, script: Script, node: cst.CSTNode, depth: int = DEPTH) -> bool:
    """Return whether only some ranks reach a node: by a condition here, or at every call."""
    if guarded_here(project, script, node, depth):
        return True
    function = script.function_of(node)
    if function is None or not depth:
        return False
    owner = script.class_of(function)
    if owner is not None and _all_guarded(project, project.uses.get(owner, []), depth):
        # Only some ranks make such an object.
        return True
    if owner is not None and function.name.value == "__init__":
        return False
    sure = list(project.uses.get(function, []))
    sure += [(h.script, h.call) for h in project.handed.get(function, [])]
    if sure:
        return _all_guarded(project, sure, depth)
    # Calls on objects of unknown classes: one of them may be a call of another method.
    likely = [use for use in project.calls_of(script, function) if project.runs(*use)]
    return any(guarded(project, s, call, depth - 1) for s, call in likely)


def guarded_here(project: Project, script: Script, node: cst.CSTNode, depth: int = DEPTH) -> bool:
    """Return whether a condition in the function around a node lets only some ranks pass."""
    before: cst.CSTNode = node
    for parent in script.above(node):
        if isinstance(parent, cst.If) and before is not parent.test:
            if _tells(project, script, parent.test, before is parent.body, depth):
                return True
        elif isinstance(parent, cst.IfExp | cst.BooleanOperation):
            if asks_rank(parent):
                return True
        elif isinstance(parent, cst.IndentedBlock):
            if _left_before(project, script, parent, before, depth):
                return True
        elif isinstance(parent, cst.FunctionDef):
            return any(_asks_itself(project, script, d.decorator) for d in parent.decorators)
        before = parent
    return False


def _asks_itself(project: Project, script: Script, decorator: cst.CSTNode) -> bool:
    """Return whether a decorator, or the function behind it, asks for the rank."""
    if asks_rank(decorator):
        return True
    made = project.function(script, decorator)
    return made is not None and _ASKS.search(made[0].code(made[1].body)) is not None


def _all_guarded(project: Project, uses: list[Use], depth: int) -> bool:
    """Return whether only some ranks reach each of some calls that run."""
    alive = [use for use in uses if project.runs(*use)] or uses
    return bool(alive) and all(guarded(project, s, call, depth - 1) for s, call in alive)


def _tells(project: Project, script: Script, test: cst.CSTNode, holds: bool, depth: int) -> bool:
    """Return whether only some ranks find that a condition holds, or that it does not."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return _tells(project, script, test.expression, not holds, depth)
    if isinstance(test, cst.BooleanOperation):
        both = isinstance(test.operator, cst.And) is holds
        sides = [
            _tells(project, script, side, holds, depth)
            for side in (test.left, test.right)
            if both or not _contradicts(project, script, side, holds)
        ]
        if any(sides) if both else (bool(sides) and all(sides)):
            return True
        # Of `not several or rank == 0`, nobody may know the first side.
        return asks_rank(test) and not any(
            _lets_pass(project, script, n, True) for n in walk(test) if isinstance(n, cst.Name)
        )
    if _lets_pass(project, script, test, holds):
        # `save(state, is_main=True)`: the guard lets every rank pass.
        return False
    if asks_rank(test):
        return True
    if isinstance(test, cst.Comparison) and constant(test.comparisons[0].comparator) is None:
        # `if writer is not None`
        test = test.left
    called = test.func if isinstance(test, cst.Call) else test
    if dotted(called) is None or not depth:
        return False
    origins = [o for o in project.origins(script, test) if o.node is not test]
    if isinstance(test, cst.Call):
        # `self.when()`, where `when` is a function of the rank
        origins += [o for o in project.origins(script, called) if o.node is not called]
    if any(asks_rank(o.node) for o in origins if not isinstance(o.node, cst.Call)):
        return True
    made = [o for o in origins if constant(o.node) is ...]
    return bool(made) and all(
        o.node in o.script.order and guarded(project, o.script, o.node, max(0, depth - 2))
        for o in made
    )


def _lets_pass(project: Project, script: Script, test: cst.CSTNode, holds: bool) -> bool:
    """Return whether a call of the function passes a literal for a parameter that is asked for."""
    found = script.scope_of(test).find(test.value) if isinstance(test, cst.Name) else None
    function = script.function_of(test)
    if found is None or function is None or [b.kind for b in found[1]] != ["parameter"]:
        return False
    assert isinstance(test, cst.Name)
    return any(constant(v) is holds for _, v in project.arguments(script, function, test.value))


def _contradicts(project: Project, script: Script, test: cst.CSTNode, holds: bool) -> bool:
    """Return whether a side never holds on several ranks, or asks for None where there is none."""
    if project.truth(script, test) is (not holds):
        return True
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1 or not holds:
        return False
    if constant(test.comparisons[0].comparator) is not None:
        return False
    if not isinstance(test.comparisons[0].operator, cst.Is | cst.Equal):
        return False
    origins = project.origins(script, test.left)
    return all(o.node is not test.left and constant(o.node) is not None for o in origins)


def _left_before(
    project: Project, script: Script, block: cst.IndentedBlock, below: cst.CSTNode, depth: int
) -> bool:
    """Return whether `if rank != 0: return`, or `continue`, comes before a statement."""
    for statement in block.body:
        if statement is below:
            return False
        if not isinstance(statement, cst.If) or not ends(statement.body):
            continue
        if _tells(project, script, statement.test, False, depth):
            return True
    return False
