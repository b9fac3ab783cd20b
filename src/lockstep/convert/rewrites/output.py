"""Let the first process write files: guard what only writes, and nothing that does more."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.analysis.blocks import calls_in, receiver, runs
from lockstep.convert.analysis.output_names import (
    FOLDERS,
    WRITER,
    opened,
    opens_by_method,
    stores,
)
from lockstep.convert.work import Work
from lockstep.source.tree import argument

ORDER = 200
_PLAIN = re.compile(
    r"(.*\.)?(state_dict|cpu|detach|numpy|items|keys|values|join|format|str|int|float|bool|len|round|"
    r"dict|list|tuple|sorted|vars|repr|get|item|tolist|clone|copy|deepcopy|isoformat|strftime|now|"
    r"today|mean|std|sum|max|min|abs|Path|joinpath|with_suffix|basename|dirname|splitext|abspath|"
    r"array|asarray|stack|concatenate|cat|view|reshape|permute|transpose|squeeze|unsqueeze|clamp|"
    r"mul|add|div|sub|byte|uint8|type|to|range|zip|enumerate|replace|strip|lower|split|make_grid|"
    r"get_last_lr|get_rng_state|get_state|getstate|unwrap|asdict|namedtuple|open|first_only|gcf|"
    r"fromarray|eval|half|pop_|expanduser|resolve|as_posix|DataFrame|Series|get_rng_state_all|"
    r"reset_index|dumps|hexdigest|model_dump|to_dict|parameters|named_parameters|children|script|trace)$"
)


def rewrite(work: Work) -> None:
    """Silence what writes files in all processes but the first."""
    left = work.made_files.alone
    for script in work.scripts:
        work.script = script
        wanted: set[cst.CSTNode] = {
            s
            for s in script.order
            if isinstance(s, cst.SimpleStatementLine) and s not in left and _only_writes(work, s)
        }
        done: set[cst.CSTNode] = set()
        for block in _blocks(work, wanted):
            for run in runs(block, wanted):
                work.draft.under(f"if {work.use('RANK')} == 0:", run)
                work.done("output", run[0], "one process writes for all")
                done.update(c for s in run for c in calls_in(s))
        for call in script.calls:
            if call not in done and call not in left:
                _open(work, call)


def _blocks(work: Work, wanted: set[cst.CSTNode]) -> list[list[cst.CSTNode]]:
    """Return the blocks that hold these statements."""
    owners = dict.fromkeys(work.script.parents[s] for s in wanted)
    return [list(owner.body) for owner in owners]  # type: ignore[attr-defined]


def _only_writes(work: Work, statement: cst.SimpleStatementLine) -> bool:
    """Return whether a line does nothing but write, so that the other processes can skip it."""
    for part in statement.body:
        if not isinstance(part, cst.Expr) or not isinstance(part.value, cst.Call):
            return False
        call = part.value
        if not stores(work.project, work.script, call) or _to_open_file(work, call):
            return False
        inner = [c for c in calls_in(call) if c is not call]
        if not all(_is_plain(work, c) for c in inner):
            return False
    return True


def _to_open_file(work: Work, call: cst.Call) -> bool:
    """Return whether a call writes to a file that is open: the others write to no file then."""
    name = work.project.title(work.script, call.func)
    if not name.endswith(".dump"):
        return False
    given = argument(call, "fp", 1) or argument(call, "stream", 1)
    return isinstance(given, cst.Name)


def _is_plain(work: Work, call: cst.Call) -> bool:
    """Return whether a call changes nothing."""
    return bool(_PLAIN.match(work.project.title(work.script, call.func)))


def _open(work: Work, call: cst.Call) -> None:
    """Let the first process open a file, make a writer or a folder."""
    script, project = work.script, work.project
    path = opened(project, script, call)
    name = project.title(script, call.func)
    if path is not None:
        work.draft.around(path.value, f"{work.use('first_only')}(")
        work.done("output", call, "one process writes the file")
    elif opens_by_method(call):
        owner = receiver(call)
        assert owner is not None
        opens = f"open({work.use('first_only')}({script.code(owner)})"
        rest = [script.code(arg).rstrip(", ") for arg in call.args]
        work.draft.replace(call, ", ".join([opens, *rest]) + ")")
        work.done("output", call, "one process writes the file")
    elif WRITER.match(name) and project.definition(script, call.func) is None:
        if name != "wandb.init":
            work.draft.around(
                call, "(", f" if {work.use('RANK')} == 0 else {work.use('Silent')}())"
            )
            work.done("output", call, "one process keeps the log")
    elif FOLDERS.match(name) or receiver(call, "mkdir") is not None:
        _folder(work, call, name)
    elif (
        stores(project, script, call)
        and isinstance(script.parents.get(call), cst.Expr)
        and not _to_open_file(work, call)
    ):
        work.note(call, "every process runs this, as it does more than writing")


def _folder(work: Work, call: cst.Call, name: str) -> None:
    """Let every process make a folder that others may have made."""
    if argument(call, "exist_ok") is not None or not (call.args or receiver(call) is not None):
        return
    if name == "os.mkdir":
        work.draft.replace(call.func, "os.makedirs")
    if call.args:
        work.draft.insert(call.args[-1].value, ", exist_ok=True", behind=True)
    else:
        end = work.script.code(call.func)
        work.draft.replace(call, f"{end}(exist_ok=True)")
    work.done("output", call, "another process may have made the folder")
