"""Judge a condition by its text: does it hold while several ranks train?"""

from __future__ import annotations

import re
from functools import lru_cache

import libcst as cst

from lockstep.source.script import Script
from lockstep.source.tree import code, constant, dotted, statements, walk

_TRUE = re.compile(
    r"_?((is|use|using|enable|run|has|do|with|in|should)_)?"
    r"(distributed|ddp|dist|distrib|fsdp|torch_?ddp|ddp_?mode|multi_?process(ing)?_?distributed)"
    r"(_?(data_?parallel|train(ing)?|run|mode|enabled?|on|active|avail(able)?|init(iali[sz]ed)?|"
    r"and|launch|process))*",
    re.I,
)
"""Names that are true while several ranks train."""
_INITIALIZED = re.compile(r"(is_)?(process_group_|dist_|ddp_|distributed_)?initiali[sz]ed", re.I)
_SIZE = re.compile(
    r"(get_|num_|n_|dist_|ddp_|global_|total_)*(world_?size|replicas|ranks)|world", re.I
)
_RANK = re.compile(r"(get_|global_|local_|dist_|ddp_|node_|my_)*rank", re.I)
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_SIZE_VARIABLE = re.compile(r"environ.*[\"'](OMPI_COMM_|SLURM_|PMI_)?(WORLD_SIZE|NTASKS|SIZE)[\"']")
_RANK_VARIABLE = re.compile(r"environ.*[\"'](OMPI_COMM_WORLD_)?(LOCAL_)?RANK[\"']")
_EXITS = re.compile(r"(sys\.)?exit|quit|os\._exit")


def is_true(name: str) -> bool:
    """Return whether a flag or a function of this name is true while several ranks train."""
    return _TRUE.fullmatch(name) is not None or _INITIALIZED.fullmatch(name) is not None


def asks_environment(name: cst.CSTNode, place: cst.CSTNode) -> bool:
    """Match `"RANK" in os.environ`: launchers set these variables."""
    return constant(name) in _VARIABLES and "environ" in code(place)


def sides_of(test: cst.CSTNode, side: bool) -> set[tuple[str, bool]]:
    """Return the single conditions that hold, or do not, on one side of an `if`."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return sides_of(test.expression, not side)
    if isinstance(test, cst.BooleanOperation):
        if isinstance(test.operator, cst.And) is side:
            return sides_of(test.left, side) | sides_of(test.right, side)
        return set()
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        value = constant(test.comparisons[0].comparator)
        if type(value) is bool and isinstance(test.comparisons[0].operator, cst.Is | cst.Equal):
            # `if args.distributed == True`
            return sides_of(test.left, side is value)
    name = dotted(test.func if isinstance(test, cst.Call) else test) or ""
    text = code(test)
    divides = re.search(r"rank\b|main|master|__name__", text, re.I)
    if divides or _INITIALIZED.search(name):
        return set()
    return {(key_of(test), side)}


@lru_cache(maxsize=1_000)
def key_of(test: cst.CSTNode) -> str:
    """Return a condition as text, without the object that a plain name belongs to."""
    name = dotted(test)
    if name is None:
        return code(test)
    # `args.ddp` is `self.args.ddp`, but `cfg.ddp.enabled` is not `cfg.ema.enabled`.
    parts = name.removeprefix("self.").split(".")
    return parts[-1] if len(parts) <= 2 else ".".join(parts[-2:])


@lru_cache(maxsize=1_000)
def opposite_of(test: cst.CSTNode) -> str:
    """Return `a == b` as text for `a != b`, and the other way round; otherwise nothing."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return ""
    operator = test.comparisons[0].operator
    signs = {cst.Equal: "!=", cst.NotEqual: "=="}
    sign = signs.get(type(operator), "")
    return f"{code(test.left)} {sign} {code(test.comparisons[0].comparator)}" if sign else ""


def of_the_world(left: cst.CSTNode, operator: cst.BaseCompOp, value: int) -> bool | None:
    """Return whether `world_size > 1` or `local_rank == -1` holds with several ranks."""
    text = code(left)
    name = dotted(left.func if isinstance(left, cst.Call) else left)
    last = "" if name is None else name.rsplit(".", 1)[-1]
    if _SIZE.fullmatch(last) or _SIZE_VARIABLE.search(text):
        results = {_compared(operator, size, value) for size in range(2, 10)}
        return results.pop() if value <= 2 and len(results) == 1 else None
    if _RANK.fullmatch(last) or _RANK_VARIABLE.search(text):
        results = {_compared(operator, rank, value) for rank in (0, 1, 2)}
        return results.pop() if value <= 0 and len(results) == 1 else None
    return None


def _compared(operator: cst.BaseCompOp, left: int, right: int) -> bool | None:
    if isinstance(operator, cst.Equal):
        return left == right
    if isinstance(operator, cst.NotEqual):
        return left != right
    if isinstance(operator, cst.GreaterThan):
        return left > right
    if isinstance(operator, cst.GreaterThanEqual):
        return left >= right
    if isinstance(operator, cst.LessThan):
        return left < right
    if isinstance(operator, cst.LessThanEqual):
        return left <= right
    return None


def ends(body: cst.BaseSuite) -> bool:
    """Return whether the last statement of a block leaves it."""
    last = next(reversed(statements(body)), None)
    if isinstance(last, cst.Return | cst.Raise | cst.Continue | cst.Break):
        return True
    value = last.value if isinstance(last, cst.Expr) else None
    name = dotted(value.func) if isinstance(value, cst.Call) else None
    return name is not None and _EXITS.fullmatch(name) is not None


def may_end(side: cst.If | cst.Else) -> bool:
    """Return whether something below leaves its block."""
    return any(isinstance(n, cst.Return | cst.Raise | cst.Continue | cst.Break) for n in walk(side))


def starts_something(script: Script) -> bool:
    """Return whether a script does more than to define and import."""
    for node in statements(script.tree):
        if isinstance(node, cst.If) and "__name__" in script.code(node.test):
            return True
        if isinstance(node, cst.For | cst.While | cst.With):
            return True
        value = node.value if isinstance(node, cst.Expr | cst.Assign) else None
        if isinstance(value, cst.Call) and isinstance(value.func, cst.Name):
            found = script.top.find(value.func.value)
            if found is not None and any(b.kind == "function" for b in found[1]):
                return True
    return False
