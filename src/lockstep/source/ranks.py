"""Find which ranks reach a place, by conditions that ask for the rank."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.source.project import DEPTH, Project
from lockstep.source.script import Script
from lockstep.source.tree import code, constant, dotted, walk, walk_shallow

_ASKS = re.compile(
    r"\b(\w*rank\w*|is_main\w*|is_master\w*|is_primary\w*|main_process|master_process|is_zero|"
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
    if isinstance(other, cst.Tuple | cst.List):
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
    """Return whether only some ranks reach a node: an `if` on the rank, here or at every call."""
    before: cst.CSTNode = node
    function: cst.FunctionDef | None = None
    for parent in script.above(node):
        if isinstance(parent, cst.If) and before is not parent.test and asks_rank(parent.test):
            return True
        if isinstance(parent, cst.IfExp | cst.BooleanOperation) and asks_rank(parent):
            return True
        if isinstance(parent, cst.FunctionDef):
            function = parent
            if _leaves_early(script, parent, node):
                return True
            if any(asks_rank(d.decorator) for d in parent.decorators):
                return True
            break
        before = parent
    if function is None or not depth:
        return False
    uses = list(project.uses.get(function, []))
    uses += [(h.script, h.call) for h in project.handed.get(function, [])]
    return bool(uses) and all(guarded(project, s, call, depth - 1) for s, call in uses)


def _leaves_early(script: Script, function: cst.FunctionDef, node: cst.CSTNode) -> bool:
    """Return whether `if rank != 0: return` comes before the node."""
    for child in walk_shallow(function.body):
        if isinstance(child, cst.If) and script.order[child] < script.order[node]:
            ends = [n for n in walk(child.body) if isinstance(n, cst.Return | cst.Raise)]
            if ends and asks_rank(child.test) and not script.inside(node, child):
                return True
    return False
