"""Keep the gradient of losses that are sums, or means over unequal numbers of items."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.convert.analysis.batch_kinds import MASKED, MEAN, SIZE, SUM, WEIGHTS, criterion, kinds
from lockstep.convert.analysis.blocks import bindings_of, last_name, receiver, statement_of
from lockstep.convert.analysis.losses import losses
from lockstep.convert.work import WIDTH, Work
from lockstep.errors import ConvertError
from lockstep.source.gradients import is_backward
from lockstep.source.loss import loss_of
from lockstep.source.script import Script
from lockstep.source.tree import argument, children, constant, dotted, walk

ORDER = 130
_ENTROPY = re.compile(
    r"torch\.nn\.(functional\.(cross_entropy|nll_loss)|CrossEntropyLoss|NLLLoss)$"
)
_IGNORED = -100
"""The label that torch ignores by default."""
_NO_GRADIENT = re.compile(r"argmax|eq|ne|gt|ge|lt|le|detach|item|bool|long|int|size|numel|dim")
_SAME = "clamp", "clamp_min", "clip", "float", "double", "to", "item", "squeeze"
_GIVEN = re.compile(r"mask|target|label|valid|weight|len|count|true|tgt|trg|gold|pad|^y", re.I)
"""Names of parameters that are not outputs of a model."""
_DEEPEST = 20


def rewrite(work: Work) -> None:
    """Scale sums by the number of processes, and weight means by the items of each."""
    found = [(script, *one) for script in work.scripts for one in _losses(work, script)]
    sums = {one[-1] == {SUM} or (work.options.sums and MEAN not in one[-1]) for one in found}
    if True in sums:
        work.flags.add("sums")
    work.mixed = len(sums) > 1
    if work.seen.norms and work.weighs:
        work.flags.add("norms_weigh")
    for script, call, loss, kind in found:
        work.script = script
        _scale(work, call, loss, kind)
    _weigh_means(work)


def _losses(work: Work, script: Script) -> Iterator[tuple[cst.Call, cst.BaseExpression, set[str]]]:
    """Yield each backward of a script with its loss, and what that is over the batch."""
    work.script = script
    for call in script.calls:
        loss = loss_of(call) if is_backward(script, call) else None
        if loss is None or not work.parts.training.used(script, call):
            continue
        found = kinds(work, script, loss) - {MASKED}
        if SUM in found and (MEAN in found or WEIGHTS in found) and not work.seen.ran:
            raise ConvertError(
                f"line {work.line(call)}: part of the loss is a sum over the batch and part is "
                "not, so no single factor keeps its gradient. Make all of it means "
                "(reduction='mean'), or divide the sums by the number of samples."
            )
        yield call, loss, found


def _scale(work: Work, call: cst.Call, loss: cst.BaseExpression, found: set[str]) -> None:
    """Multiply a sum by the number of processes, and weigh where gradients cannot be."""
    text = work.script.code(loss)
    weighed = f"{work.use('weighed')}(" if "norms_weigh" in work.flags else ""
    if found == {SUM} or (work.options.sums and MEAN not in found):
        whole = text if re.fullmatch(r"[\w.]+", text) else f"({text})"
        whole = f"{weighed}{text})" if weighed else whole
        inside = isinstance(work.script.parents.get(loss), cst.Arg)
        scaled = f"{whole} * {work.use('WORLD_SIZE')}"
        work.draft.replace(loss, scaled if inside else f"({scaled})")
        work.done("loss", call, "the loss is a sum and DDP takes a mean, so it is scaled first")
        return
    rows = work.rows.get(work.script.function_of(call))
    if rows is not None:
        work.draft.around(loss, f"{work.use('mean_of_all')}(", f", {rows})")
        work.done("loss", call, "each process counts by its rows: the last batch may be uneven")
    elif weighed:
        work.draft.around(loss, weighed)
        work.done("loss", call, "each process counts by its rows of the batch")
    if found - {WEIGHTS} != {MEAN}:
        work.note(call, f"lockstep takes {text} for a mean over the batch")


def _weigh_means(work: Work) -> None:
    """Weight the mean of each process by its share of the items."""
    done: set[cst.CSTNode] = set()
    for loss in losses(work.parts.training):
        for script, node in loss.parts:
            if script not in work.drafts:
                continue
            work.script = script
            count = _count(work, script, node)
            if count is None or node in done:
                continue
            done.add(node)
            _weigh(work, node, count)
    for span in work.seen.uneven if work.options.items else ():
        call = work.at(span)
        items = _items(work, call) if call is not None else ""
        if call is not None and items and call not in done:
            _weigh(work, call, items)


def _items(work: Work, call: cst.Call) -> str:
    """Return the number of items of `loss(guess[mask], target[mask])` and `losses.mean()`."""
    given = receiver(call, "mean")
    if given is None or dotted(given) == "torch":
        given = call.args[0].value if call.args else None
    if given is None:
        return ""
    each = [given, *(arg.value for arg in call.args if arg.keyword is None)]
    # Nothing should be computed twice if it need not be.
    plain = (n for n in each if not any(isinstance(part, cst.Call) for part in walk(n)))
    return f"len({work.script.code(next(plain, given))})"


def _weigh(work: Work, node: cst.CSTNode, count: str) -> None:
    statement = statement_of(work.script, node)
    line = work.script.lines[work.script.place(node).end.line - 1]
    alone = isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1
    if alone and len(line) + len(count) > WIDTH:
        name = work.fresh("labelled")
        work.draft.before(statement, f"{name} = {count}")
        count = name
    work.draft.around(node, f"{work.use('mean_of_all')}(", f", {count})")
    work.done(
        "loss",
        node,
        "the mean is over labelled items or by weights, so each process counts by how many of them "
        "it has",
    )


def _count(work: Work, script: Script, node: cst.CSTNode) -> str | None:
    """Return the number of items that a mean is over, as an expression."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide):
        return _below(work, script, node)
    if isinstance(node, cst.Call) and len(node.args) > 1:
        return _entropy(work, script, node)
    return None


def _below(work: Work, script: Script, node: cst.BinaryOperation) -> str | None:
    """Return the divisor of `(losses * mask).sum() / mask.sum()`."""
    if work.options.ratios and dotted(node.right) and kinds(work, script, node.left) == {SUM}:
        return script.code(node.right)
    if SIZE.search(script.code(node.right)) or not all(
        _is_sum(work, script, side, 0) for side in (node.left, node.right)
    ):
        return None
    if _learns(work, script, node.right, 0, set()):
        raise ConvertError(
            f"line {script.place(node).start.line}: the loss is a ratio of two sums over the "
            "batch that both come from the model, so it cannot be computed from parts of the "
            "batch. Take the ratio for each sample (sum over its own dimensions), then the mean."
        )
    return script.code(node.right)


def _is_sum(work: Work, script: Script, node: cst.CSTNode, depth: int) -> bool:
    """Return whether a value is a sum over the whole batch, without a dimension."""
    if depth > _DEEPEST:
        return False
    if isinstance(node, cst.BinaryOperation):
        return any(_is_sum(work, script, n, depth + 1) for n in (node.left, node.right))
    if isinstance(node, cst.Call):
        if receiver(node, "sum", "count_nonzero") is not None:
            name = work.project.name(script, node.func)
            return len(node.args) == (name in ("torch.sum", "torch.count_nonzero"))
        inner = receiver(node, *_SAME)
        if inner is not None:
            return _is_sum(work, script, inner, depth + 1)
        return kinds(work, script, node) == {SUM}
    if dotted(node) is not None and node in script.order:
        origins = [o for o in work.project.origins(script, node) if o.node is not node]
        return bool(origins) and all(
            not o.index and _is_sum(work, o.script, o.node, depth + 1) for o in origins
        )
    return False


def _entropy(work: Work, script: Script, call: cst.Call) -> str | None:
    """Return the number of items of `criterion(scores, labels)` with ignored labels or weights."""
    found = criterion(work, script, call)
    if found is None or not _is_mean(work, *found):
        return None
    where, made = found
    if not _ENTROPY.match(work.project.name(where, made.func) or ""):
        return None
    if made is not call and dotted(call.func) is None:
        return None
    functional = made is call
    names = {}
    for name, place in (("weight", 2), ("ignore_index", 4)):
        value = argument(made, name, place if functional else place - 2)
        if value is not None and constant(value) is not None:
            names[name] = where.code(value) if functional else f"{script.code(call.func)}.{name}"
    if "ignore_index" not in names and any(_leaves_out(s) for s in work.project.scripts):
        names["ignore_index"] = str(_IGNORED)
    target = call.args[1].value
    labels = script.code(target)
    kept = f"{labels} != {names['ignore_index']}" if "ignore_index" in names else ""
    if "weight" in names:
        whole = labels if isinstance(target, cst.Name | cst.Attribute | cst.Call) else f"({labels})"
        return f"{names['weight']}[{f'{whole}[{kept}]' if kept else labels}].sum()"
    return f"({kept}).sum()" if kept else None


def _is_mean(work: Work, script: Script, call: cst.Call) -> bool:
    given = argument(call, "reduction")
    if given is None:
        average = argument(call, "size_average")
        return average is None or constant(average) is not False
    return {constant(o.node) for o in work.project.origins(script, given)} == {"mean"}


def _leaves_out(script: Script) -> bool:
    """Return whether a script sets labels to the value that torch ignores."""
    return re.search(rf"(?<![\w.]){_IGNORED}\b(?!\.)", script.text) is not None


def _learns(
    work: Work, script: Script, node: cst.CSTNode, depth: int, seen: set[cst.CSTNode]
) -> bool:
    """Return whether a value comes from a model and has a gradient."""
    if node in seen or depth > _DEEPEST or node not in script.order:
        return False
    seen.add(node)
    project = work.project
    if isinstance(node, cst.Comparison):
        return False
    if isinstance(node, cst.Call):
        if receiver(node) is not None and _NO_GRADIENT.fullmatch(last_name(node)):
            return False
        if work.parts.is_model(script, node.func) is not None:
            return True
    name = dotted(node)
    if name is not None:
        bindings = bindings_of(script, node)
        for binding in bindings:
            if binding.kind == "parameter":
                function = script.function_of(binding.node)
                given = project.arguments(script, function, name) if function else []
                if any(_learns(work, s, value, depth + 1, seen) for s, value in given):
                    return True
                if not given and name != "self" and not _GIVEN.search(name):
                    return True
            elif (
                binding.kind in ("assign", "augment")
                and binding.value is not None
                and _learns(work, script, binding.value, depth + 1, seen)
            ):
                return True
        if not bindings and isinstance(node, cst.Attribute):
            return _learns(work, script, node.value, depth + 1, seen)
        return False
    return any(_learns(work, script, part, depth + 1, seen) for part in children(node))
