"""Let one process print, log, draw and save, and count the samples of all processes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from lockstep.convert.analysis.blocks import calls_in, is_main_guard, runs
from lockstep.convert.analysis.files_before_training import prepared, within
from lockstep.convert.analysis.output_calls import of_all, only_writes, opens_writer, prints, shows
from lockstep.convert.analysis.random_draws import drawn_from
from lockstep.convert.work import Work
from lockstep.source.name_uses import mentions, targets
from lockstep.source.tree import argument, constant, dotted, walk

ORDER = 200
_BAR = re.compile(r"(.*\.)?(tqdm|trange|tqdm_notebook)$")


def rewrite(work: Work) -> None:
    """Put statements that print or write under a condition on the rank."""
    _count_all(work)
    _bars(work)
    left = within(work, prepared(work))
    guarded = _block(work, list(work.script.tree.body), left)
    _writers(work, {part for statement in guarded for part in walk(statement)} | left)


def _block(
    work: Work, statements: Sequence[cst.CSTNode], left: set[cst.CSTNode]
) -> list[cst.CSTNode]:
    """Guard statements that print or write, here and in inner blocks; return what was guarded.

    Files that the processes make one after the other are left alone.
    """
    wanted = {s for s in statements if _is_output(work, s, left)}
    first = {run[0]: run for run in runs(statements, wanted)}
    guarded = [s for s in statements if s in wanted]
    above = ""
    for statement in statements:
        if statement in first:
            _guard(work, first[statement], above)
        if statement in wanted:
            continue
        following = statements[statements.index(statement) + 1 :][:1]
        above = _show_later(work, statement, alone=not any(s in first for s in following))
        for inner in _bodies(statement):
            guarded += _block(work, inner, left)
    return guarded


def _guard(work: Work, run: Sequence[cst.CSTNode], above: str) -> None:
    """Let one process run these statements, after the line above."""
    only = run[0]
    simple = isinstance(only, cst.If) and not isinstance(only.test, cst.BooleanOperation)
    if len(run) == 1 and simple and not above:
        assert isinstance(only, cst.If)
        work.draft.insert(only.test, f" and {work.rank} == 0", behind=True)
    else:
        work.draft.under(f"if {work.rank} == 0:{above}", run)
    work.done("output", only, "one process prints and writes for all")


def _show_later(work: Work, statement: cst.CSTNode, *, alone: bool) -> str:
    """Let all processes evaluate and one print, for `print(evaluate(model))`."""
    parts = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
    call = parts[0].value if len(parts) == 1 and isinstance(parts[0], cst.Expr) else None
    if not isinstance(call, cst.Call) or dotted(call.func) != "print" or not call.args:
        return ""
    if any(arg.keyword is not None or arg.star for arg in call.args):
        return ""
    shown = work.fresh("shown")
    star = "*" if len(call.args) > 1 else ""
    line = f"print({star}{shown})"
    work.draft.replace(call.func, f"{shown} = ")
    work.done("output", statement, "all processes compute what one of them prints")
    if not alone:
        return f"\n\t{line}"
    # Within the statement: lines that other rewrites put below it must come after.
    indent = f"\n{work.draft.indentation(statement)}"
    guarded = f"{indent}if {work.rank} == 0:{indent}{work.draft.unit}{line}"
    work.draft.insert(call, guarded, behind=True)
    return ""


def _bodies(statement: cst.CSTNode) -> list[list[cst.CSTNode]]:
    """Return the blocks of a statement. An `elif` is not a separate statement."""
    found: list[list[cst.CSTNode]] = []
    body = getattr(statement, "body", None)
    if isinstance(body, cst.IndentedBlock):
        found.append(list(body.body))
    for name in ("orelse", "finalbody"):
        other = getattr(statement, name, None)
        if isinstance(other, cst.If):
            found.append([inner for body in _bodies(other) for inner in body])
        elif other is not None:
            found += _bodies(other)
    for handler in getattr(statement, "handlers", ()):
        found += _bodies(handler)
    return found


def _is_output(work: Work, statement: cst.CSTNode, left: set[cst.CSTNode]) -> bool:
    """Return whether a statement does nothing but print or write."""
    if isinstance(statement, cst.SimpleStatementLine):
        kinds = [_kind(work, part, left) for part in statement.body]
        return all(kinds) and any(kind == "output" for kind in kinds)
    if isinstance(statement, cst.If) and not is_main_guard(statement) and statement.orelse is None:
        if not isinstance(statement.body, cst.IndentedBlock) or of_all(work, statement.test):
            return False
        return all(_is_output(work, s, left) for s in statement.body.body)
    if isinstance(statement, cst.With) and isinstance(statement.body, cst.IndentedBlock):
        heads = [item.item for item in statement.items if isinstance(item.item, cst.Call)]
        return (
            any(opens_writer(work, work.script, call) for call in heads)
            and statement not in left
            and not drawn_from(work, work.script, statement)
            and only_writes(work, statement)
        )
    return False


def _kind(work: Work, part: cst.CSTNode, left: set[cst.CSTNode]) -> str | None:
    if isinstance(part, cst.Pass):
        return "nothing"
    if not isinstance(part, cst.Expr) or not isinstance(part.value, cst.Call):
        return None
    call = part.value
    if any(of_all(work, a) for a in call.args):
        return None
    stays = part in left and not prints(work, call)
    return "output" if shows(work, call) and not stays else None


def _writers(work: Work, inside: set[cst.CSTNode]) -> None:
    """Let one process open what others write to between other work, except inside these nodes."""
    for call in work.script.calls:
        if call in inside or not opens_writer(work, work.script, call):
            continue
        parent = work.script.parents.get(call)
        if isinstance(parent, cst.Assign):
            work.draft.insert(call, f" if {work.rank} == 0 else None", behind=True)
            work.done("output", call, "one process keeps the log")
        elif isinstance(parent, cst.WithItem):
            _open_once(work, call)


def _open_once(work: Work, call: cst.Call) -> None:
    """Let one process write the file of a `with open(...)` whose body all processes must run."""
    path = argument(call, "file", 0)
    new = "x" in str(constant(argument(call, "mode", 1)))
    if work.script.code(call.func) != "open" or path is None or new:
        work.need("nullcontext")
        work.draft.insert(call, f" if {work.rank} == 0 else nullcontext()", behind=True)
    else:
        bare = isinstance(path, cst.IfExp | cst.Lambda) and not path.lpar
        work.draft.insert(path, "(" if bare else "")
        end = f"{')' if bare else ''} if {work.rank} == 0 else os.devnull"
        work.draft.insert(path, end, behind=True)
    work.done("output", call, "one process writes the file; all run the rest of the block")


def _bars(work: Work) -> None:
    for call in work.script.calls:
        bar = _BAR.match(work.project.title(work.script, call.func))
        if bar and call.args and argument(call, "disable") is None:
            work.draft.insert(call.args[-1].value, f", disable={work.rank} > 0", behind=True)
            work.done("output", call, "one progress bar is enough")


def _count_all(work: Work) -> None:
    """Multiply `batch_idx * len(data)` by the number of processes where it is printed."""
    for loader in work.parts.trained_on:
        for loop in work.parts.loops_of(loader):
            if loop.script is work.script:
                for product in _products(loop.node):
                    if _is_shown(work, product):
                        work.draft.insert(product, f" * {work.world}", behind=True)
                        work.done("output", product, "counts the samples of all processes")


def _products(loop: cst.For) -> Iterator[cst.BinaryOperation]:
    """Yield products of the batch's number and its size."""
    counted = any(dotted(n.func) == "enumerate" for n in calls_in(loop.iter))
    if not counted or not isinstance(loop.target, cst.Tuple) or len(loop.target.elements) != 2:
        return
    number, batch = (targets(element.value) for element in loop.target.elements)
    for part in walk(loop.body):
        if (
            isinstance(part, cst.BinaryOperation)
            and isinstance(part.operator, cst.Multiply)
            and mentions(part.left, number, set())
            and isinstance(part.right, cst.Call)
            and dotted(part.right.func) == "len"
            and mentions(part.right.args[0].value, batch, set())
        ):
            yield part


def _is_shown(work: Work, node: cst.CSTNode) -> bool:
    """Return whether a value is only printed, directly or through a variable."""
    for parent in work.script.above(node):
        if isinstance(parent, cst.Call) and shows(work, parent):
            return True
        if isinstance(parent, cst.Assign):
            return _shown_by_name(work, parent, node)
        if isinstance(parent, cst.Subscript | cst.BaseSmallStatement):
            return False
    return False


def _shown_by_name(work: Work, statement: cst.Assign, node: cst.CSTNode) -> bool:
    """Return whether `current` of `loss, current = loss.item(), batch * len(X)` is only printed."""
    target: cst.BaseExpression = statement.targets[0].target
    if isinstance(target, cst.Tuple) and isinstance(statement.value, cst.Tuple):
        pairs = zip(target.elements, statement.value.elements, strict=False)
        target = next((name.value for name, value in pairs if node in walk(value)), target)
    if not isinstance(target, cst.Name) or len(statement.targets) > 1:
        return False
    scope = work.script.scope_of(statement)
    names = [
        node for node in work.script.order if isinstance(node, cst.Name) and node is not target
    ]
    uses = [n for n in names if n.value == target.value and work.script.scope_of(n) is scope]
    return bool(uses) and all(_is_shown(work, use) for use in uses)
