"""Divide batches that no DataLoader of the script makes: each process takes rows of them.

Which expression gives a batch is tried, one after the other, until a result is proven.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from lockstep.convert.analysis.blocks import assigned_to
from lockstep.convert.work import Work
from lockstep.source.script import Script
from lockstep.source.tree import dotted, walk, walk_shallow

ORDER = 5
_AROUND = ("enumerate", "tqdm", "list", "iter", "track", "progress", "prange", "tqdm_notebook")
"""Functions that pass on what they go over."""
_COUNTS = ("range", "trange", "count")
_NO_BATCH = (
    "to",
    "cuda",
    "float",
    "long",
    "item",
    "detach",
    "size",
    "view",
    "unsqueeze",
    "squeeze",
)
Place = tuple[Script, list[cst.BaseExpression], bool]
"""Expressions, and whether a loop goes over them."""


def rewrite(work: Work) -> None:
    """Divide what the option names, if anything."""
    if not work.options.source:
        return
    places = sources(work)
    if work.options.source > len(places):
        return
    work.script, nodes, looped = places[work.options.source - 1]
    dimension = f", {work.options.dimension}" if work.options.dimension else ""
    for node in nodes:
        if looped:
            work.draft.around(node, f"{work.use('dealt')}(", f"{dimension})")
        else:
            bare = isinstance(node, cst.Tuple) and not node.lpar
            before, behind = ("(", ")") if bare else ("", "")
            start = f"{work.use('part_made')}(lambda: {before}"
            work.draft.around(node, start, f"{behind}{dimension})")
            work.flags.add("calls")
        work.done("data", node, "each process takes its rows of every batch")
    work.split = True


def sources(work: Work) -> list[Place]:
    """Return the expressions that may give batches, the likeliest first."""
    loops: dict[cst.CSTNode, Place] = {}
    calls: dict[cst.CSTNode, Place] = {}
    for forward in work.seen.forwards:
        if not forward.learns:
            continue
        for span in forward.stack:
            call = work.at(span)
            if call is None:
                continue
            script = work.script
            for parent in script.above(call):
                if isinstance(parent, cst.FunctionDef):
                    break
                if isinstance(parent, cst.For):
                    given = _gone_over(parent.iter)
                    if given is not None:
                        loops.setdefault(given, (script, [given], True))
                if isinstance(parent, cst.For | cst.While):
                    for made in _made_before(work, script, parent, call):
                        calls.setdefault(made[0], (script, made, False))
    return [*loops.values(), *calls.values()]


def _gone_over(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return what a loop goes over; nothing if it only counts."""
    while isinstance(node, cst.Call):
        name = (dotted(node.func) or "").rpartition(".")[2]
        if name in _COUNTS:
            return None
        if name not in _AROUND or not node.args:
            break
        node = node.args[0].value
    return node


def _made_before(
    work: Work, script: Script, loop: cst.For | cst.While, call: cst.Call
) -> Iterator[list[cst.BaseExpression]]:
    """Yield what a loop makes for a forward pass, the nearest first; branches make it alike."""
    needed = {node.value for node in walk(call) if isinstance(node, cst.Name)}
    found: dict[str, list[cst.BaseExpression]] = {}
    assigns = [
        node
        for node in walk_shallow(loop.body)
        if isinstance(node, cst.Assign) and script.order[node] < script.order[call]
    ]
    for assign in reversed(assigns):
        targets = [name for target in assigned_to(assign) for name in _names(target)]
        if not {name.partition(".")[0] for name in targets} & needed:
            continue
        needed |= {node.value for node in walk(assign.value) if isinstance(node, cst.Name)}
        made = _moved(assign.value)
        if _makes(work, script, made):
            found.setdefault(" ".join(targets), []).append(made)
    yield from found.values()
    # `update(*sample(data, 64))`
    yield from ([arg.value] for arg in call.args if _makes(work, script, arg.value))


def _moved(made: cst.BaseExpression) -> cst.BaseExpression:
    """Return what is moved to a device: `sample(64)` of `sample(64).to(device)`."""
    while isinstance(made, cst.Call) and isinstance(made.func, cst.Attribute):
        if made.func.attr.value not in _NO_BATCH or not isinstance(made.func.value, cst.Call):
            break
        made = made.func.value
    return made


def _makes(work: Work, script: Script, made: cst.BaseExpression) -> bool:
    """Return whether an expression may make a batch: a call of the script, or rows of an array."""
    if isinstance(made, cst.Tuple):
        return all(isinstance(one.value, cst.Subscript) for one in made.elements)
    if isinstance(made, cst.Subscript):
        return True
    if not isinstance(made, cst.Call) or work.parts.is_model(script, made.func) is not None:
        return False
    path = dotted(made.func) or "torch"
    return path.partition(".")[0] != "torch" and path.rpartition(".")[2] not in _NO_BATCH


def _names(target: cst.CSTNode) -> list[str]:
    found = dotted(target)
    return [found] if found else [n.value for n in walk(target) if isinstance(n, cst.Name)]
