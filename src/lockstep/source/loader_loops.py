"""Find the DataLoaders that a program makes, and the loops over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from lockstep.source.gradients import is_backward
from lockstep.source.loaders import DATA_LOADER, Loader, Loop
from lockstep.source.project import DEPTH, Project
from lockstep.source.ranks import guarded
from lockstep.source.script import Class, Origin, Passage, Script, Via
from lockstep.source.tree import dotted, walk_shallow

_AROUND = {
    "enumerate", "tqdm", "tqdm_notebook", "track", "iter", "islice", "zip", "progress_bar",
    "log_every", "Bar", "list", "cycle",
}  # fmt: skip
"""Functions that loops put around a loader."""
_MOST = 6
"""The most ways in which one call is taken to make loaders."""
_LEVELS = 2
"""How many functions around a call are looked at for such ways."""
_NEXT = ("next", "__next__", "next_batch", "get_next")


def loaders(project: Project, runs: Callable[[Script, cst.CSTNode], bool]) -> list[Loader]:
    """Return all DataLoaders that the program makes, with the loops over them."""
    found: dict[cst.Call, list[Loader]] = {}
    for loader in _made(project):
        script, call = loader.place
        if runs(script, call):
            found[call] = _ways(project, loader)
    for script in project.scripts:
        for node in script.order:
            if type(node) is cst.For:
                _note_loop(project, script, node, node.iter, found)
            elif type(node) is cst.Call:
                for loop, source in _stepped(script, node):
                    _note_loop(project, script, loop, source, found)
    return [loader for same in found.values() for loader in same]


def _made(project: Project) -> Iterator[Loader]:
    """Yield DataLoaders, and objects of classes of the project that are built on DataLoader."""
    for script, call in project.calls(*DATA_LOADER):
        yield Loader(project, script, call)
    for script in project.scripts:
        for call in script.calls:
            owner = project.class_named(script, call.func)
            if owner is not None and _is_loader(project, owner, 3):
                yield _of_class(project, owner, script, call)


def _is_loader(project: Project, owner: Class, depth: int) -> bool:
    script, made = owner
    for base in made.bases:
        if project.name(script, base.value) in DATA_LOADER:
            return True
        above = project.class_named(script, base.value) if depth else None
        if above is not None and _is_loader(project, above, depth - 1):
            return True
    return False


def _of_class(project: Project, owner: Class, script: Script, call: cst.Call) -> Loader:
    """Return the loader that a call of a class makes, with what its `__init__` hands on."""
    found = project.method_of(*owner, "__init__")
    for inner in walk_shallow(found[1].body) if found is not None else ():
        if not isinstance(inner, cst.Call) or not isinstance(inner.func, cst.Attribute):
            continue
        above = inner.func.value
        if inner.func.attr.value == "__init__" and isinstance(above, cst.Call):
            if found is None or any(arg.star == "*" for arg in inner.args):
                break
            via = (Passage(found[1], script, call),)
            return Loader(project, found[0], inner, via, (script, call))
    return Loader(project, script, call)


def _ways(project: Project, loader: Loader) -> list[Loader]:
    """Return the loader once for each call of the functions around it that may make it."""
    chains: list[Via] = [loader.via]
    script, node = loader.place
    for _ in range(_LEVELS):
        longer: list[Via] = []
        for chain in chains:
            where, inner = (chain[0].script, chain[0].call) if chain else (script, node)
            function = where.function_of(inner)
            uses = project.callers(where, function) if function is not None else []
            if function is None or not uses:
                longer.append(chain)
                continue
            known = [passage.function for passage in chain]
            longer += [(Passage(function, *use), *chain) for use in uses if function not in known]
        if len(longer) > _MOST or not longer:
            break
        chains = longer
    own = len(loader.via)
    kept = [c for c in chains if project.runs(script, node, c[: len(c) - own])] or [loader.via]
    return [Loader(project, loader.script, loader.call, via, loader.maker) for via in kept]


def _stepped(
    script: Script, call: cst.Call
) -> Iterator[tuple[cst.For | cst.While, cst.BaseExpression]]:
    """Match `next(batches)` and `batches.next()` in a loop; yield the loop, and the batches."""
    if isinstance(call.func, cst.Attribute) and call.func.attr.value in _NEXT and not call.args:
        source = call.func.value
    elif isinstance(call.func, cst.Name) and call.func.value == "next" and call.args:
        source = call.args[0].value
    else:
        return
    fresh = isinstance(source, cst.Call) and script.code(source.func) == "iter"
    for parent in script.above(call):
        if isinstance(parent, cst.For | cst.While):
            # `next(iter(loader))` takes one batch, to train on it or only to look at it.
            calls = (n for n in walk_shallow(parent.body) if isinstance(n, cst.Call))
            if not fresh or any(is_backward(script, each) for each in calls):
                yield parent, source
            return
        if isinstance(parent, cst.FunctionDef):
            return


def _note_loop(
    project: Project,
    script: Script,
    node: cst.For | cst.While,
    source: cst.BaseExpression,
    found: dict[cst.Call, list[Loader]],
) -> None:
    function = script.function_of(node)
    calls = project.callers(script, function) if function is not None else []
    ways: list[Via] = [(Passage(function, *call),) for call in calls] if function else []
    taken: dict[Via, bool] = {}
    for via in ways[:_MOST] or [()]:
        for origin in _sources(project, script, source, found, via):
            for loader in found.get(origin.call, []) if origin.call is not None else ():
                if not loader.fits(origin.via):
                    continue
                if via not in taken:
                    taken[via] = _trains(project, script, node.body, via, DEPTH, set())
                alone = any(guarded(project, way.script, way.call) for way in via) or guarded(
                    project, script, node
                )
                known = next((loop for loop in loader.loops if loop.node is node), None)
                if known is None:
                    loader.loops.append(Loop(script, node, loader, taken[via], alone))
                else:
                    known.trains |= taken[via]
                    known.alone &= alone


def _trains(
    project: Project,
    script: Script,
    body: cst.CSTNode,
    via: Via,
    depth: int,
    seen: set[cst.CSTNode],
) -> bool:
    """Return whether a loop reaches a backward, if its function is called in this way."""
    for node in walk_shallow(body):
        if is_backward(script, node) and project.runs(script, node, via):
            return True
        made = project.function(script, node.func) if isinstance(node, cst.Call) and depth else None
        if made is None or made[1] in seen or not project.runs(script, node, via):
            continue
        seen.add(made[1])
        assert isinstance(node, cst.Call)
        inner = (*via, Passage(made[1], script, node))
        if _trains(project, made[0], made[1].body, inner, depth - 1, seen):
            return True
    return False


def _sources(
    project: Project,
    script: Script,
    node: cst.BaseExpression,
    found: dict[cst.Call, list[Loader]],
    via: Via,
    depth: int = 3,
) -> list[Origin]:
    """Return where batches come from, also through generators and classes around a loader."""
    origins = project.origins(script, iterated(project, script, node), via)
    if any(origin.call in found for origin in origins) or not depth:
        return origins
    inner: list[Origin] = []
    for origin in origins:
        if origin.call is not None and _passes_on(project, origin.script, origin.call):
            for arg in origin.call.args:
                inner += _sources(project, origin.script, arg.value, found, origin.via, depth - 1)
    return [origin for origin in inner if origin.call in found] or origins


def _passes_on(project: Project, script: Script, call: cst.Call) -> bool:
    """Return whether a call may give the batches of a loader that it gets."""
    made = project.definition(script, call.func)
    if made is None:
        name = dotted(call.func) or ""
        return any(word in name.lower() for word in ("prefetch", "cycle", "infinite", "iter"))
    if isinstance(made[1], cst.ClassDef):
        return bool({"__iter__", "__next__", *_NEXT} & set(made[0].scopes[made[1]].bindings))
    return any(isinstance(part, cst.Yield) for part in walk_shallow(made[1].body))


def iterated(project: Project, script: Script, node: cst.BaseExpression) -> cst.BaseExpression:
    """Return what a loop goes through, without enumerate, tqdm and the like."""
    seen: set[cst.CSTNode] = set()
    while node not in seen:
        # `loader = tqdm(loader)` leads back to itself.
        seen.add(node)
        call: cst.CSTNode = node
        if isinstance(node, cst.Name):
            # `bar = tqdm(loader)`
            origins = project.origins(script, node)
            call = origins[0].node if len(origins) == 1 and origins[0].script is script else node
        if not isinstance(call, cst.Call) or not call.args or call.args[0].star:
            return node
        name = project.title(script, call.func)
        if name.rsplit(".", 1)[-1] not in _AROUND:
            return node
        node = call.args[0].value
    return node
