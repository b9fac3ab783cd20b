"""Find code that every rank runs: not only one rank, and not only the process that starts them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.source.definitions import PROCESS, SPAWN
from lockstep.source.project import Project
from lockstep.source.ranks import asks_rank, divides, guarded
from lockstep.source.script import Script, Use
from lockstep.source.training import GROUPS, Training
from lockstep.source.tree import argument, children, code, dotted, walk_shallow

_LOCK = re.compile(r"lock|(main|zero|local|rank)_?\w*first", re.I)
_DEEP = 6


def on_every_rank(
    training: Training, script: Script, node: cst.CSTNode, *, once: bool = False
) -> bool:
    """Return whether all ranks run a place at about the same time.

    With `once`, not if the process that starts the ranks has run it before.
    """
    if not training.runs(script, node) or guarded(training.project, script, node):
        return False
    if _takes_turns(training.project, script, node):
        return False
    function = script.function_of(node)
    calls = training.project.calls_of(script, function) if function is not None else []
    if calls and all(_takes_turns(training.project, where, call) for where, call in calls):
        return False
    targets = targets_of(training)
    if once and targets and script.function_of(node) is None:
        return False
    return not targets or _in_a_rank(training.project, script, node, targets, _DEEP, set())


def differs_by_rank(training: Training, script: Script, path: cst.CSTNode) -> bool:
    """Return whether a path names the rank, a process, a sample or a temporary place."""
    for where, part in pieces(training.project, script, path):
        text = where.code(part)
        if isinstance(part, cst.Subscript):
            if _SAMPLE.search(text) or _KEY.search(text):
                return True
        elif asks_rank(part) or _OWN.search(text) or _SAMPLE.search(_QUOTED.sub("", text)):
            return True
    return False


def pieces(
    project: Project, script: Script, path: cst.CSTNode
) -> Iterator[tuple[Script, cst.CSTNode]]:
    """Yield names, calls and texts that a path is put together from."""
    seen: set[cst.CSTNode] = set()
    waiting = [(script, path)]
    while waiting and len(seen) < 200:
        where, node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, cst.Name | cst.Attribute):
            yield where, node
            found = project.origins(where, node) if node in where.order else []
            waiting += [(o.script, o.node) for o in found if not o.index]
            waiting += _set_elsewhere(project, node)
            bound = where.scope_of(node).find(node.value) if isinstance(node, cst.Name) else None
            grown = [b.value for b in (bound[1] if bound else ()) if b.kind == "augment"]
            waiting += [(where, value) for value in grown if value is not None]
        elif isinstance(node, cst.Subscript):
            yield where, node
        elif isinstance(node, cst.Call):
            last = (
                node.func.attr.value if isinstance(node.func, cst.Attribute) else dotted(node.func)
            )
            if last in _JOINING:
                waiting += [(where, arg.value) for arg in node.args]
                waiting += [(where, n.value) for n in (node.func,) if isinstance(n, cst.Attribute)]
            else:
                yield where, node.func
        else:
            if isinstance(node, cst.FormattedString):
                yield where, node
            waiting += [(where, child) for child in children(node)]


def _set_elsewhere(project: Project, node: cst.CSTNode) -> list[tuple[Script, cst.CSTNode]]:
    """Return what `options.folder = ...` gives an option, wherever the program overwrites it."""
    if not isinstance(node, cst.Attribute) or not isinstance(node.value, cst.Name):
        return []
    if node.value.value == "self":
        return []
    return [
        (script, statement.value)
        for script in project.scripts
        for statement, target in script.set_attributes.get(node.attr.value, ())
        if code(target.value) != "self"
    ]


_JOINING = {
    "join", "str", "Path", "format", "abspath", "realpath", "expanduser", "joinpath", "dirname",
    "with_suffix", "with_name", "replace", "open", "FileHandler", "int", "resolve", "absolute",
}  # fmt: skip
"""Functions that make paths of their arguments."""
_QUOTED = re.compile(r"(?<![fF])[\"'][^\"'{]*[\"']")
_SAMPLE = re.compile(
    r"\b\w*(img|image|sample|video|utt|audio|room|scene|frame|slide|patient|case)"
    r"_?(name|id|path|file|idx|key)s?\b|\b(img|im)_?names?\b|\bimgid\b",
    re.I,
)
_KEY = re.compile(r"[\"'](file_?name|f?name|id|path|key|stem)[\"']", re.I)
"""Names of one sample: ranks hold different ones."""
_OWN = re.compile(
    r"getpid|random|randint|hostname|uuid|tempfile|mkdtemp|mkstemp|devnull|/dev/null|StringIO|BytesIO"
)


def _takes_turns(project: Project, script: Script, node: cst.CSTNode) -> bool:
    """Return whether a lock is held, or the other ranks wait behind a barrier in this function."""
    for parent in script.above(node):
        if isinstance(parent, cst.With) and any(_waits(project, script, i) for i in parent.items):
            return True
        if isinstance(parent, cst.FunctionDef):
            return any(
                isinstance(child, cst.If)
                and divides(child.test)
                and script.order[child] < script.order[node]
                and "barrier" in script.code(child)
                for child in walk_shallow(parent.body)
            )
    return False


def _waits(project: Project, script: Script, item: cst.WithItem) -> bool:
    """Match `with FileLock(path)` and `with main_process_first()`."""
    if _LOCK.search(script.code(item)):
        return True
    call = item.item
    made = project.function(script, call.func) if isinstance(call, cst.Call) else None
    return made is not None and "barrier" in made[0].code(made[1])


def targets_of(training: Training) -> set[cst.FunctionDef]:
    """Return the functions that the ranks of mp.spawn and the like run."""
    project = training.project
    found: set[cst.FunctionDef] = set()
    launchers: set[cst.CSTNode] = set()
    for script, call in training.named(*SPAWN, *PROCESS):
        for value in (argument(call, "fn", 0), argument(call, "target", 1)):
            made = project.function(script, value) if value is not None else None
            if made is not None:
                found.add(made[1])
        function = script.function_of(call)
        if function is not None:
            launchers.add(function)
    for launcher in launchers:
        # `launch(main, num_gpus)`, which spawns a function that calls main
        for script, call in project.uses.get(launcher, []):
            for arg in call.args:
                made = project.function(script, arg.value)
                if made is not None:
                    found.add(made[1])
    begins: set[cst.Call] = {use[1] for use in training.named(*GROUPS)}
    begins |= {wrap.call for wrap in training.wraps}
    # Processes and threads for other work start no ranks.
    return {f for f in found if _reaches_any(project, f, begins)}


def _reaches_any(project: Project, function: cst.FunctionDef, wanted: set[cst.Call]) -> bool:
    script = next(s for s in project.scripts if function in s.order)
    return project.reaches(script, function.body, lambda _, node: node in wanted, _DEEP)


def _in_a_rank(
    project: Project,
    script: Script,
    node: cst.CSTNode,
    targets: set[cst.FunctionDef],
    deep: int,
    seen: set[cst.CSTNode],
) -> bool:
    """Return whether a rank runs this, and not only the process that starts the ranks."""
    function = script.function_of(node)
    if function is None:
        # A spawned process imports the module again, without the block under __name__.
        tests = (script.code(p.test) for p in script.above(node) if isinstance(p, cst.If))
        return not any("__name__" in test for test in tests)
    if function in targets or function in seen or not deep:
        return function in targets
    seen.add(function)
    calls: list[Use] = [use for use in project.calls_of(script, function) if project.runs(*use)]
    if not calls:
        return not any(_starts(project, script, n) for n in walk_shallow(function.body))
    return any(_in_a_rank(project, s, call, targets, deep - 1, seen) for s, call in calls)


def _starts(project: Project, script: Script, node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and project.name(script, node.func) in (*SPAWN, *PROCESS)
