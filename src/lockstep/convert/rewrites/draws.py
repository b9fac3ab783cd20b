"""Draw apart what belongs to samples, and alike what decides for the whole step."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.work import Work
from lockstep.source.tree import dotted

ORDER = 80
_LISTED = re.compile(r"(os\.)?listdir$|glob\.i?glob$|os\.scandir$")


def rewrite(work: Work) -> None:
    """Give all processes one value where they would draw or find different ones."""
    apart = {draw.library for draw in work.seen.draws if draw.by_sample}
    work.flags |= {name for name in ("random", "numpy") if name in apart}
    apart.add("torch")
    for draw in work.seen.draws:
        if draw.in_stream and draw.library == "torch":
            work.flags.add("alike")
        if draw.by_sample or draw.in_stream or draw.library not in apart:
            continue
        call = work.at(draw.span)
        if call is not None and call not in work.cut and not _is_in_same(work, call):
            work.draft.around(call, f"{work.use('same')}(")
            work.done("chance", call, "this decides for the whole step, so all processes share it")
    for script in work.scripts:
        work.script = script
        for call in script.calls:
            _unordered(work, call)


def _is_in_same(work: Work, call: cst.Call) -> bool:
    parent = work.script.parents.get(call)
    outer = work.script.parents.get(parent) if isinstance(parent, cst.Arg) else None
    return isinstance(outer, cst.Call) and dotted(outer.func) == "same"


def _unordered(work: Work, call: cst.Call) -> None:
    """Share lists whose order no rule gives: of a set, or of the files in a folder."""
    script = work.script
    if call in work.made_files.nodes:
        return  # one process runs this while the others wait
    name = work.project.title(script, call.func)
    if name in ("list", "tuple", "enumerate") and call.args:
        given = call.args[0].value
        if not _is_set(work, given):
            return
        if name == "enumerate":
            work.draft.around(given, f"{work.use('same')}(list(", "))")
        else:
            work.draft.around(call, f"{work.use('same')}(")
        work.done("chance", call, "the order of a set differs between processes")
    elif _LISTED.match(name) and not _is_sorted(work, call):
        if name.endswith(("scandir", "iglob")):
            return
        work.draft.around(call, f"{work.use('same')}(")
        work.done("chance", call, "no rule gives the order of files, so the first process's counts")


def _is_set(work: Work, node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.Set | cst.SetComp):
        return True
    if isinstance(node, cst.Call):
        return dotted(node.func) in ("set", "frozenset")
    if not isinstance(node, cst.Name):
        return False
    made = [o.node for o in work.project.origins(work.script, node) if o.node is not node]
    return bool(made) and all(
        isinstance(n, cst.SetComp | cst.Set)
        or (isinstance(n, cst.Call) and dotted(n.func) in ("set", "frozenset"))
        for n in made
    )


def _is_sorted(work: Work, call: cst.Call) -> bool:
    """Return whether a call is inside `sorted`, `len` or `in`, so that its order does not count."""
    for parent in work.script.above(call):
        if isinstance(parent, cst.Call) and dotted(parent.func) in ("sorted", "len", "set", "any"):
            return True
        if isinstance(parent, cst.Comparison):
            return True
        if isinstance(parent, cst.BaseSmallStatement | cst.BaseCompoundStatement):
            return False
    return False
