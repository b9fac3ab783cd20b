"""Find files that a script makes if they are missing, or writes before training and reads later."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from lockstep.convert.analysis.blocks import bindings_of, is_main_guard, names_in, statement_of
from lockstep.convert.analysis.output_calls import opens_file, writes_file
from lockstep.convert.analysis.random_draws import drawn_by, drawn_from
from lockstep.convert.analysis.run_order import may_be_saved_here, runs_before, runs_earlier
from lockstep.convert.work import Work
from lockstep.source.gradients import is_backward
from lockstep.source.script import Script
from lockstep.source.tree import argument, constant, walk, walk_shallow

_ASKS = re.compile(r"\b(exists|lexists|isfile|isdir|is_file|is_dir|listdir|iterdir|i?glob)\(")
_SEEDS = {
    "torch": re.compile(r"\bmanual_seed\("),
    "numpy": re.compile(r"\b(np|numpy)\.random\.seed\("),
    "random": re.compile(r"(?<!\.)\brandom\.seed\("),
}
_READS = re.compile(
    r"(?!torch\.load$)(.*\.)?(open|load|loadtxt|genfromtxt|read_\w+|imread|ImageFolder|"
    r"DatasetFolder|safe_load|fromfile|memmap|i?glob|listdir|scandir|iterdir|h5py\.File)$"
)
"""Not torch.load: the rewrite of checkpoints waits for that one."""


def prepared(work: Work) -> list[cst.CSTNode]:
    """Return the statements that make missing files and always run before training."""
    found = []
    for node in work.script.order:
        if isinstance(node, cst.If) and not is_main_guard(node) and _asks(work, node.test):
            found += [s for s in _whole(work, node) if _makes_files(work, s)]
    found = [s for s in dict.fromkeys(found) if may_wait(work, s)]
    runs = {s: {part for place in (s, *_functions(work, s)) for part in walk(place)} for s in found}
    outer = [s for s in found if not any(s in runs[t] for t in found if t is not s)]
    return [s for s in outer if not _divides_draws(work, s)]


def within(work: Work, statements: list[cst.CSTNode]) -> set[cst.CSTNode]:
    """Return all nodes that run only inside these statements, including functions of the script."""
    inside = {part for statement in statements for part in walk(statement)}
    waiting = dict.fromkeys(f for s in statements for f in _functions(work, s))
    for _ in range(len(waiting)):
        for function in waiting:
            uses = [call for _, call in work.project.callers(work.script, function)]
            if uses and function not in inside and all(call in inside for call in uses):
                inside.update(walk(function))
    return inside


def may_wait(work: Work, statement: cst.CSTNode) -> bool:
    """Return whether all processes reach a statement before training, and do nothing jointly."""
    project, script = work.project, work.script
    together: set[cst.CSTNode] = {loop.node for loop in work.parts.training.loops}
    together |= {node for model in work.parts.models for node in (model.made, model.ready)}

    def is_busy(where: Script, node: cst.CSTNode) -> bool:
        if not isinstance(node, cst.Call):
            return node in together
        name = project.name(where, node.func)
        return (
            constant(argument(node, "download")) is True
            or bool(work.parts.is_model(where, node.func))
            or is_backward(where, node)
            or (name == "torch.load" and where is script and may_be_saved_here(work, node))
        )

    return (
        _in_group(work, script, statement)
        and not any(
            is_busy(where, part)
            for where, place in [(script, statement), *_places(work, statement)]
            for part in walk(place)
        )
        and not runs_earlier(project, script, statement, is_backward)
    )


def _asks(work: Work, test: cst.BaseExpression) -> bool:
    """Return whether a condition only asks about files, so that making a file changes it."""
    if isinstance(test, cst.BooleanOperation):
        return _asks(work, test.left) and _asks(work, test.right)
    return _ASKS.search(work.script.code(test)) is not None


def _whole(work: Work, node: cst.If) -> list[cst.CSTNode]:
    """Return the `if` itself, or the statements that call its function if the `if` returns."""
    function = work.script.function_of(node)
    parts = list(walk_shallow(node))
    if not any(isinstance(part, cst.Return) for part in parts):
        # An `elif` is not a full statement, and a `break` needs its loop.
        ends = any(isinstance(part, cst.Break | cst.Continue) for part in parts)
        return [node] if statement_of(work.script, node) is node and not ends else []
    uses = work.project.uses.get(function, []) if function else []
    calls = [statement_of(work.script, call) for where, call in uses if where is work.script]
    return [s for s in calls if isinstance(s, cst.SimpleStatementLine)]


def _makes_files(work: Work, statement: cst.CSTNode) -> bool:
    return not any(
        isinstance(part, cst.Return) for part in walk_shallow(statement)
    ) and work.project.reaches(
        work.script, statement, lambda s, n: isinstance(n, cst.Call) and writes_file(work, s, n)
    )


def _in_group(work: Work, script: Script, node: cst.CSTNode, depth: int = 4) -> bool:
    """Return whether the process group exists when the program reaches a node."""
    place = _place(work, script, node)
    if place is not None:
        return place >= work.parts.entry.index(work.parts.beginning)
    function = script.function_of(node)
    if function is None or not depth:
        return False
    uses = work.project.callers(script, function)
    return bool(uses) and all(_in_group(work, where, call, depth - 1) for where, call in uses)


def _place(work: Work, script: Script, node: cst.CSTNode) -> int | None:
    """Return the index of the entry statement that holds a node; None inside other functions."""
    for above in (node, *script.above(node)):
        if isinstance(above, cst.FunctionDef):
            break
        if above in work.parts.entry:
            return work.parts.entry.index(above)
    return None


def _divides_draws(work: Work, statement: cst.CSTNode) -> bool:
    """Return whether one process would draw random numbers here that the others do not draw."""
    script = work.script
    kinds = drawn_from(work, script, statement)
    place = _place(work, script, statement)
    below = work.parts.entry[place + 1 :] if place is not None else []
    rest = "".join(script.code(s) for s in below)
    kinds = {kind for kind in kinds if not _SEEDS[kind].search(rest)}
    inside = within(work, [statement])
    for call in _plain_calls(work):
        after = call not in inside and not runs_before(script, call, statement)
        if after and drawn_by(work, script, call) & kinds:
            work.note(
                statement,
                "one process may make these files before the others look; the others would then "
                f"draw different random numbers in line {work.line(call)}. Set the seed below it",
            )
            return True
    return False


def _plain_calls(work: Work) -> Iterator[cst.Call]:
    """Yield calls outside of training loops and outside of methods of data sets and models."""
    loops = [loop for script, loop, _ in work.parts.turns if script is work.script]
    for call in work.script.calls:
        function = work.script.function_of(call)
        method = function is not None and work.script.class_of(function) is not None
        if method and function is not None and function.name.value != "__init__":
            continue
        if not any(work.script.inside(call, loop) for loop in loops):
            yield call


def _functions(work: Work, statement: cst.CSTNode) -> list[cst.FunctionDef]:
    """Return the functions of the script that a statement calls, directly or not."""
    return [function for where, function in _places(work, statement) if where is work.script]


def _places(work: Work, statement: cst.CSTNode) -> list[tuple[Script, cst.FunctionDef]]:
    """Return all functions that a statement calls, directly or not, including constructors."""
    found: dict[cst.FunctionDef, Script] = {}
    waiting: list[tuple[Script, cst.CSTNode]] = [(work.script, statement)]
    while waiting:
        script, node = waiting.pop()
        for call in (part for part in walk(node) if isinstance(part, cst.Call)):
            where, made = work.project.definition(script, call.func) or (script, None)
            inner = [made] if isinstance(made, cst.FunctionDef) else []
            if isinstance(made, cst.ClassDef):
                inner = [f for f in made.body.body if isinstance(f, cst.FunctionDef)]
            for function in inner:
                if function not in found:
                    found[function] = where
                    waiting.append((where, function))
    return [(where, function) for function, where in found.items()]


def awaited(
    work: Work, inside: set[cst.CSTNode], among: Sequence[cst.CSTNode] | None = None
) -> list[cst.CSTNode]:
    """Return the statements that write a file which later code reads, by default of all."""
    found: list[cst.CSTNode] = []
    for statement in work.parts.entry if among is None else among:
        if isinstance(statement, cst.FunctionDef | cst.ClassDef) or statement in inside:
            continue
        words = _written(work, statement, inside)
        if words and may_wait(work, statement):
            if _is_read(work, statement, words):
                found.append(statement)
            else:
                for block in _called(work, statement):
                    found += awaited(work, inside, block)
    return found


def _written(work: Work, statement: cst.CSTNode, inside: set[cst.CSTNode]) -> set[str]:
    """Return the names and strings that tell where a statement writes files."""
    found: set[str] = set()
    for where, call in work.project.calls_below(work.script, statement):
        if call not in inside and writes_file(work, where, call):
            found |= _words(where, call)
    if found:
        for part in walk(statement):
            if isinstance(part, cst.Call):
                found |= _words(work.script, part)
    return found


def _is_read(work: Work, statement: cst.CSTNode, words: set[str]) -> bool:
    own = set(walk(statement))
    return any(
        call not in own
        and not runs_before(work.script, call, statement)
        and words & _words(work.script, call)
        and _reads(work, work.script, call)
        and work.script.function_of(call) is work.script.function_of(statement)
        for call in work.script.calls
    )


def _reads(work: Work, script: Script, call: cst.Call) -> bool:
    """Return whether a call reads a file, or makes an object that reads one."""
    where, body = work.project.definition(script, call.func) or (script, None)
    calls = [call]
    if body is not None:
        calls = [part for part in walk(body) if isinstance(part, cst.Call) and part is not call]
    return any(
        _READS.match(work.project.title(where, part.func)) and not opens_file(work, where, part)
        for part in calls
    )


def _words(script: Script, call: cst.Call) -> set[str]:
    """Return the variables in a call, and the strings long enough to be a file's name."""
    strings = [part.value for part in walk(call) if isinstance(part, cst.SimpleString)]
    found = {string.strip("rbuf\"'") for string in strings if len(string) > 4}
    for part, name in names_in(call):
        bindings = bindings_of(script, part, name.split(".")[0])
        if any(b.kind in ("assign", "parameter") for b in bindings):
            found.add(name)
    return found


def _called(work: Work, statement: cst.CSTNode) -> list[Sequence[cst.CSTNode]]:
    """Return the bodies of functions that only this statement calls."""
    found: list[Sequence[cst.CSTNode]] = []
    for part in walk(statement):
        if isinstance(part, cst.Call):
            made = work.project.function(work.script, part.func)
            once = made is not None and len(work.project.uses.get(made[1], [])) == 1
            if made is not None and made[0] is work.script and once:
                found.append(made[1].body.body)
    return found
