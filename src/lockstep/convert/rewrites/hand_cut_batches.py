"""Divide batches that are cut by hand: each process takes every n-th row."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.analysis.blocks import bindings_of, statement_of
from lockstep.convert.work import Work
from lockstep.source.gradients import without_gradient
from lockstep.source.script import Script
from lockstep.source.tree import dotted, walk, walk_shallow

ORDER = 70
_BATCH = re.compile(r"batch|\bbsz?\b|\bmb\b", re.I)
_DRAWS = "torch.randint", "numpy.random.randint", "torch.multinomial", "numpy.random.choice"


def rewrite(work: Work) -> None:
    """Divide the batches of loops without a DataLoader."""
    if work.seen.loaders or work.options.source:
        return
    done: set[cst.CSTNode] = set()
    for script in work.scripts:
        work.script = script
        # Innermost loops first, since a slice belongs to the loop nearest to it.
        for where, loop, _ in reversed(work.parts.turns):
            if where is script:
                _rows(work, loop, done)
        if not done:
            work.split = _columns(work) or _draws(work) or work.split
    work.split = work.split or bool(done)
    if work.split:
        work.flags.add("cut")


def _rows(work: Work, loop: cst.For | cst.While, done: set[cst.CSTNode]) -> None:
    """Divide slices such as `x[i : i + batch]`, and note them as done."""
    script = work.script
    slices = [
        (part, size)
        for part in walk_shallow(loop.body)
        if isinstance(part, cst.Slice)
        and part not in done
        and (size := _length(work, part)) is not None
        and not without_gradient(script, part)
    ]
    found = [(part, size) for part, size in slices if _is_batch(work, slices, part, size)]
    for part, _ in found:
        assert part.lower is not None
        assert part.upper is not None
        done.add(part)
        work.draft.insert(part.lower, f" + {work.use('RANK')}", behind=True)
        work.draft.insert(part.upper, f":{work.use('WORLD_SIZE')}", behind=True)
        work.done("sliced", part, "each process takes every n-th row of the batch")
    if found:
        _common_order(work)
        rows = work.rows[script.function_of(loop)] = _rows_of(script, found[0][0])
        if rows is None:
            _even(work, loop, found[0][1])


def _length(work: Work, part: cst.Slice) -> str | None:
    """Return the length of a slice such as `i : i + batch` or `b * batch : (b + 1) * batch`."""
    if part.lower is None or part.upper is None or part.step is not None:
        return None
    script = work.script
    lower, upper = (re.sub(r"\s", "", script.code(n)) for n in (part.lower, part.upper))
    if re.fullmatch(r"\w+", upper):
        values = [b.value for b in bindings_of(script, part, upper) if b.value is not None]
        texts = {re.sub(r"\s", "", script.code(value)) for value in values}
        upper = texts.pop() if len(texts) == 1 else upper
        inner = re.fullmatch(r"min\((.+),[^,]+\)", upper)
        upper = inner[1] if inner else upper
    after = re.fullmatch(re.escape(lower) + r"\+(\w[\w.]*)", upper)
    if after:
        return after[1]
    turn = re.fullmatch(r"(\w+)\*(\w[\w.]*)", lower)
    if turn and upper in (f"({turn[1]}+1)*{turn[2]}", f"{turn[2]}*({turn[1]}+1)"):
        return turn[2]
    return None


def _is_batch(work: Work, slices: list[tuple[cst.Slice, str]], part: cst.Slice, size: str) -> bool:
    """Return whether the rows of a slice are samples, and not time steps of a sequence."""
    if _BATCH.search(size):
        return True
    if not size.isdecimal():
        return False
    script = work.script
    sliced = {
        script.code(value)
        for other, length in slices
        if length == size and (value := _value(script, other)) is not None
    }
    value = _value(script, part)
    made = work.project.origins(script, value) if value is not None else []
    return len(sliced) > 1 or any("perm" in o.script.code(o.node) for o in made)


def _value(script: Script, part: cst.Slice) -> cst.BaseExpression | None:
    """Return the expression that is sliced."""
    for parent in script.above(part):
        if isinstance(parent, cst.Subscript):
            return parent.value
    return None


def _rows_of(script: Script, part: cst.Slice) -> str | None:
    """Return the number of rows of a process as an expression, as the last batch may be uneven."""
    statement = statement_of(script, part)
    assign = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    if not isinstance(assign, cst.Assign):
        return None
    target: cst.BaseExpression = assign.targets[0].target
    if isinstance(target, cst.Tuple):
        target = target.elements[0].value
    return f"len({dotted(target)})" if dotted(target) is not None else None


def _even(work: Work, node: cst.CSTNode, size: str) -> None:
    """Let the program stop above a statement if the batch does not divide evenly."""
    work.draft.before(statement_of(work.script, node), f"{work.use('part_of')}({size})")


def _common_order(work: Work) -> None:
    """Share the shuffled order that the first process draws."""
    script = work.script
    for call in script.calls:
        name = work.project.name(script, call.func)
        if name in ("torch.randperm", "numpy.random.permutation") and isinstance(
            script.parents.get(call), cst.Assign
        ):
            work.draft.around(call, f"{work.use('same')}(")
            work.done("sliced", call, "all processes use the order that the first one drew")


def _columns(work: Work) -> bool:
    """Divide sequences of `data = batchify(text, batch_size)`; return whether there were any."""
    script, project = work.script, work.project
    sizes: set[str] = set()
    cut: set[cst.CSTNode] = set()
    for _, loop, acts in work.parts.turns:
        if not any(act.kind == "backward" and not act.loops for act in acts):
            continue
        for part in walk_shallow(loop.body):
            if not isinstance(part, cst.Name):
                continue
            for binding in bindings_of(script, part):
                call = binding.value
                if not isinstance(call, cst.Call) or binding.node in cut or binding.index:
                    continue
                made = project.definition(script, call.func)
                given = [a.value for a in call.args if _BATCH.search(script.code(a.value))]
                body = made[0].code(made[1]) if made else ""
                if not given or not re.search(r"\.(view|reshape)\(", body):
                    continue
                cut.add(binding.node)
                turned = re.search(r"\.t\(\)|\.T\b|transpose", body)
                rows = f"{work.use('RANK')}::{work.use('WORLD_SIZE')}"
                index = f"[:, {rows}].contiguous()" if turned else f"[{rows}]"
                statement, size = statement_of(script, binding.node), script.code(given[0])
                work.draft.after(statement, f"{part.value} = {part.value}{index}")
                _even(work, statement, size)
                work.done(
                    "sliced", statement, "each process takes every n-th sequence of the batch"
                )
                sizes.add(size)
    _shares(work, sizes)
    return bool(sizes)


def _shares(work: Work, sizes: set[str]) -> None:
    """Divide the same batch size where training passes it to functions."""
    script = work.script
    for where, loop, _ in work.parts.turns:
        function = script.function_of(loop)
        if where is not script or function is None:
            continue
        for part in walk_shallow(function.body):
            parent = script.parents.get(part)
            if isinstance(parent, cst.Arg) and script.code(part) in sizes:
                work.draft.around(part, f"{work.use('part_of')}(")
                work.done("sliced", part, "uses the batch size of one process")


def _draws(work: Work) -> bool:
    """Divide draws such as `torch.randint(n, (batch_size,))`; return whether there were any."""
    script = work.script
    found = False
    for call in script.calls:
        name = work.project.name(script, call.func) or ""
        given = [part for arg in call.args for part in walk(arg.value)] if name in _DRAWS else []
        for part in given:
            whole = not isinstance(script.parents.get(part), cst.Attribute)
            named = isinstance(part, cst.Name | cst.Attribute) and whole
            if named and _BATCH.search(script.code(part)):
                work.draft.around(part, f"{work.use('part_of')}(")
                work.cut.add(call)
                work.done("sliced", call, "each process draws its part of the batch")
                found = True
    return found
