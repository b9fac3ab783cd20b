"""Average gradients: DDP for the forward passes that train, or all gradients before the step."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.work import AVERAGE, DDP, UNUSED, Work
from lockstep.errors import ConvertError
from lockstep.source.accumulation import is_one, windows
from lockstep.source.tree import walk

ORDER = 20
_PLAIN = (
    cst.Name, cst.Attribute, cst.Integer, cst.BinaryOperation, cst.Comparison,
    cst.BooleanOperation, cst.Call,
)  # fmt: skip
"""What the condition around a step may be made of, to hold at the forward pass, too."""


def rewrite(work: Work) -> None:
    """Let DDP or `average` combine the gradients, and synchronise batch norm."""
    way = work.options.averaging or suggested(work)
    if way == AVERAGE:
        _average(work)
    else:
        _wrap(work)
    if work.options.sync_batch_norm:
        work.flags.add("norms")
        _synchronise(work, everywhere=way == AVERAGE)


def suggested(work: Work) -> str:
    """Return how to average, by what the run has shown."""
    if not work.seen.by_ddp:
        return AVERAGE
    return UNUSED if work.seen.unused else DDP


def _wrap(work: Work) -> None:
    """Call the model through DDP where training calls it; everywhere else it stays as it is."""
    for forward in work.seen.forwards:
        call = work.at(forward.span) if forward.learns else None
        if call is not None:
            last = _last_of_step(work, call)
            work.draft.around(call.func, f"{work.use('ddp')}(", f", {last})" if last else ")")
            work.done("model", call, "DDP averages the gradients of this forward pass")
            if last:
                work.flags.add("sync")


def _last_of_step(work: Work, call: cst.Call) -> str:
    """Return a condition that is true in the last backward of a step; empty if there is none."""
    function = work.script.function_of(call)
    found = []
    for window in windows(work.parts.training):
        if is_one(work.parts.training, window):
            continue
        place = (window.backward.script, window.backward.script.function_of(window.backward.call))
        if place == (work.script, function):
            found.append(window)
    tests = {id(window.test): window.test for window in found}
    if len(tests) != 1 or None in tests.values() or found[0].step.script is not work.script:
        return ""
    test = next(iter(tests.values()))
    assert test is not None
    same_loop = found[0].loop in list(work.script.above(call))
    plain = all(isinstance(n, _PLAIN) for n in walk(test.test) if isinstance(n, cst.BaseExpression))
    steps = [
        c for c in work.script.named_last("step")
        if work.script.function_of(c) is function and work.project.title(work.script, c.func)
        == work.project.title(work.script, found[0].step.call.func)
    ]  # fmt: skip
    return work.script.code(test.test) if same_loop and plain and len(steps) == 1 else ""


def _average(work: Work) -> None:
    """Average the gradients before the first thing that uses them after the last backward."""
    placed: set[tuple[cst.CSTNode, str]] = set()
    for acts in work.seen.acts:
        steps = [span for what, span in acts if what == "step"]
        if not steps:
            continue
        optimizer = None
        step = work.at(steps[-1])
        if step is not None:
            optimizer, owner = _optimizer(step), work.script
        if step is None or optimizer is None:
            raise ConvertError(
                "lockstep could not see which line lets the optimizer step. Call optimizer.step() "
                "in the script."
            )
        name = owner.code(optimizer)
        last = max((n for n, (what, _) in enumerate(acts) if what == "backward"), default=-1)
        first = work.at(next(span for what, span in acts[last + 1 :]))
        if first is None or work.script is not owner:
            first = work.at(steps[-1])
        assert first is not None
        if work.script.function_of(first) is not owner.function_of(step):
            first, work.script = step, owner
        statement = work.statement(first)
        if (statement, name) not in placed:
            placed.add((statement, name))
            work.draft.before(statement, f"{work.use('average')}({name})")
            work.done("model", first, "averages the gradients of all processes, which DDP cannot")


def _optimizer(call: cst.Call) -> cst.BaseExpression | None:
    """Return the optimizer of `optimizer.step()` and of `scaler.step(optimizer)`."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "step":
        return None
    return call.args[0].value if call.args else call.func.value


def _synchronise(work: Work, *, everywhere: bool) -> None:
    """Let batch norm see the whole batch where a model does not learn, or DDP does not wrap it."""
    spans = list(work.seen.moves_norms)
    for forward in work.seen.forwards:
        if work.seen.norms and (everywhere or not forward.learns) and not forward.inside:
            spans.append(forward.span)
    for span in dict.fromkeys(spans):
        call = work.at(span)
        if call is not None:
            work.draft.around(call.func, f"{work.use('synchronized')}(")
            work.done("model", call, "batch norm sees the batches of all processes")
