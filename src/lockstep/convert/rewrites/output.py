"""Lines and files: one process prints, logs, draws and saves."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from lockstep.convert.blocks import calls_in, is_main_guard, runs
from lockstep.convert.rewrites import progress
from lockstep.convert.work import Work
from lockstep.source.gradients import is_backward
from lockstep.source.script import Script
from lockstep.source.tree import argument, constant

_PRINTS = re.compile(
    r"(print|pprint|logging\.\w+|warnings\.warn|sys\.stdout\.(write|flush)|tqdm\.write)$"
)
_WRITES = re.compile(
    r"(.*\.)?(torch\.save|savefig|save_image|imsave|imwrite|dump|savetxt|savez\w*|to_csv|to_json|"
    r"to_parquet|copyfile|copy2|rmtree|save_pretrained|save_file|mkdir|makedirs|write_text|"
    r"np\.save|numpy\.save|jit\.save|onnx\.export|save_checkpoint|save_model|write|writelines|writerow|writerows)$"
)
_DRAWS = re.compile(r"(plt|matplotlib\.pyplot|pyplot|sns|wandb|mlflow|ax\d?|axes|fig)\.")
_LOGGER = re.compile(
    r"(\w*\.)*_?\w*log(ger|ging)?\.(info|debug|warning|error|critical|log|exception)$", re.I
)
_WRITER = re.compile(r"SummaryWriter$|Visdom$|^csv\.(writer|DictWriter)$")
_BAR = re.compile(r"(.*\.)?(tqdm|trange|tqdm_notebook)$")


def rewrite(work: Work) -> None:
    """Put what prints or writes under a condition on the rank."""
    _writers(work)
    _bars(work)
    progress.rewrite(work, lambda call: shows(work, call))
    _block(work, list(work.script.tree.body))


def _block(work: Work, statements: Sequence[cst.CSTNode]) -> None:
    wanted = {s for s in statements if _is_output(work, s)}
    first = {run[0]: run for run in runs(statements, wanted)}
    above = ""
    for statement in statements:
        if statement in first:
            _guard(work, first[statement], above)
        if statement in wanted:
            continue
        following = statements[statements.index(statement) + 1 :][:1]
        above = _show_later(work, statement, alone=not any(s in first for s in following))
        for inner in _bodies(statement):
            _block(work, inner)


def _guard(work: Work, run: Sequence[cst.CSTNode], above: str) -> None:
    """One process runs these statements, after the line above."""
    only = run[0]
    simple = isinstance(only, cst.If) and not isinstance(only.test, cst.BooleanOperation)
    if len(run) == 1 and simple and not above:
        assert isinstance(only, cst.If)
        work.draft.insert(only.test, f" and {work.rank} == 0", behind=True)
    else:
        work.draft.under(f"if {work.rank} == 0:{above}", run)
    work.done("output", only, "one process prints and writes for all")


def _show_later(work: Work, statement: cst.CSTNode, *, alone: bool) -> str:
    """`print(evaluate(model))`: all processes evaluate, one prints; if not alone, further down."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return ""
    part = statement.body[0]
    if not isinstance(part, cst.Expr) or not isinstance(part.value, cst.Call):
        return ""
    call = part.value
    plain = all(arg.keyword is None and not arg.star for arg in call.args)
    if not plain or work.script.code(call.func) != "print" or not call.args:
        return ""
    shown = work.fresh("shown")
    star = "*" if len(call.args) > 1 else ""
    line = f"print({star}{shown})"
    work.draft.replace(call.func, f"{shown} = ")
    work.done("output", statement, "all processes compute what one of them prints")
    if not alone:
        return f"\n\t{line}"
    # In the statement's own lines: what others put below it, such as the end, comes after.
    indent = work.draft.indentation(statement)
    work.draft.insert(
        call, f"\n{indent}if {work.rank} == 0:\n{indent}{work.draft.unit}{line}", behind=True
    )
    return ""


def _bodies(statement: cst.CSTNode) -> list[list[cst.CSTNode]]:
    found: list[list[cst.CSTNode]] = []
    body = getattr(statement, "body", None)
    if isinstance(body, cst.IndentedBlock):
        found.append(list(body.body))
    for name in ("orelse", "finalbody"):
        other = getattr(statement, name, None)
        if other is not None:
            found += [[other]] if isinstance(other, cst.If) else _bodies(other)
    for handler in getattr(statement, "handlers", ()):
        found += _bodies(handler)
    # `elif` is no statement of its own.
    return [_bodies_of_elif(b) if len(b) == 1 and _is_elif(statement, b[0]) else b for b in found]


def _is_elif(statement: cst.CSTNode, other: cst.CSTNode) -> bool:
    return isinstance(statement, cst.If) and statement.orelse is other


def _bodies_of_elif(block: list[cst.CSTNode]) -> list[cst.CSTNode]:
    return [s for body in _bodies(block[0]) for s in body]


def _is_output(work: Work, statement: cst.CSTNode) -> bool:
    """Whether a statement does nothing but show or store something."""
    if isinstance(statement, cst.SimpleStatementLine):
        kinds = [_kind(work, part) for part in statement.body]
        return all(kinds) and any(kind == "output" for kind in kinds)
    if isinstance(statement, cst.If) and not is_main_guard(statement) and statement.orelse is None:
        if not isinstance(statement.body, cst.IndentedBlock) or _collective(work, statement.test):
            return False
        return all(_is_output(work, s) for s in statement.body.body)
    if isinstance(statement, cst.With) and isinstance(statement.body, cst.IndentedBlock):
        opens = any(
            isinstance(i.item, cst.Call) and _opens(work, work.script, i.item)
            for i in statement.items
        )
        return opens and all(_is_output(work, s) for s in statement.body.body)
    return False


def _kind(work: Work, part: cst.CSTNode) -> str | None:
    if isinstance(part, cst.Pass):
        return "nothing"
    if not isinstance(part, cst.Expr) or not isinstance(part.value, cst.Call):
        return None
    call = part.value
    if any(_collective(work, a) for a in call.args):
        return None
    return "output" if shows(work, call) else None


def shows(work: Work, call: cst.Call) -> bool:
    """Whether a call prints or writes."""
    script = work.script
    if isinstance(call.func, cst.Attribute) and _is_writer(work, call.func.value):
        return True
    text = script.code(call.func)
    name = work.parts.project.name(script, call.func) or text
    if name.startswith("./") or work.parts.project.definition(script, call.func):
        made = work.parts.project.definition(script, call.func)
        # What another file prints is kept quiet where it is called.
        return (
            made is not None
            and made[0] is not script
            and isinstance(made[1], cst.FunctionDef)
            and work.parts.project.reaches(
                made[0],
                made[1].body,
                lambda s, n: (
                    isinstance(n, cst.Call)
                    and bool(re.search(r"print|stdout\.write|torch\.save", s.code(n.func)))
                ),
            )
        )
    if text.endswith(("mkdir", "makedirs")) and constant(argument(call, "exist_ok")) is True:
        # All may do it, and all may go on to write there.
        return False
    if (
        _is_print(work, call.func)
        or _PRINTS.match(name)
        or _WRITES.match(name)
        or _WRITES.match(text)
    ):
        return True
    return bool(_DRAWS.match(text) or _DRAWS.match(name) or _LOGGER.match(text))


def _is_print(work: Work, node: cst.CSTNode) -> bool:
    """Whether a name stands for nothing but print: `trace_func=print`."""
    origins = work.parts.project.origins(work.script, node)
    return all(isinstance(o.node, cst.Name) and o.node.value == "print" for o in origins)


def _is_writer(work: Work, node: cst.CSTNode) -> bool:
    """Whether a value writes: a log for pictures, or a file that was opened for it."""
    return any(
        origin.call is not None and _opens(work, origin.script, origin.call)
        for origin in work.parts.project.origins(work.script, node)
    )


def _opens(work: Work, script: Script, call: cst.Call) -> bool:
    """Whether a call gives something that writes."""
    name = work.parts.project.name(script, call.func) or script.code(call.func)
    if _WRITER.search(name):
        return True
    mode = constant(argument(call, "mode", 1))
    return name == "open" and isinstance(mode, str) and bool(set(mode) & set("wax"))


def _collective(work: Work, node: cst.CSTNode) -> bool:
    """Whether something in an expression is a matter of all processes."""
    loops = {loop.node for loop in work.parts.training.loops}
    for call in calls_in(node):
        made = work.parts.project.definition(work.script, call.func)
        if made is None or not isinstance(made[1], cst.FunctionDef):
            continue
        if work.parts.project.reaches(
            made[0], made[1].body, lambda s, n: is_backward(s, n) or n in loops
        ):
            return True
    return False


def _writers(work: Work) -> None:
    for call in work.script.calls:
        parent = work.script.parents.get(call)
        if isinstance(parent, cst.Assign) and _opens(work, work.script, call):
            work.draft.insert(call, f" if {work.rank} == 0 else None", behind=True)
            work.done("output", call, "one process keeps the log")


def _bars(work: Work) -> None:
    for call in work.script.calls:
        name = work.parts.project.name(work.script, call.func) or work.script.code(call.func)
        if (
            _BAR.match(name)
            and call.args
            and not any(a.keyword and a.keyword.value == "disable" for a in call.args)
        ):
            work.draft.insert(call.args[-1].value, f", disable={work.rank} > 0", behind=True)
            work.done("output", call, "one progress bar is enough")
