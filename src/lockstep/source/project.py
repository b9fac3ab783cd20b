"""Answer questions about several scripts that import each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import libcst as cst

from lockstep.source.live import Live
from lockstep.source.script import Script
from lockstep.source.tree import constant, walk_shallow

DEPTH = 4
"""How many nested calls of the project's functions are followed."""


class Project(Live):
    """Scripts that belong together; other modules are read when they are imported."""

    def __init__(self, scripts: Sequence[Script], *, several_ranks: bool = False) -> None:
        super().__init__(scripts, several_ranks=several_ranks)
        self._by_name: dict[str, list[tuple[Script, cst.Call]]] | None = None

    def calls(self, *names: str) -> Iterator[tuple[Script, cst.Call]]:
        """Yield all calls of functions and classes with these names, in the given scripts."""
        if self._by_name is None:
            self._by_name = {}
            for script in self.scripts:
                for call in script.calls:
                    name = self.name(script, call.func)
                    if name is not None:
                        self._by_name.setdefault(name, []).append((script, call))
        wanted = [self._by_name[name] for name in dict.fromkeys(names) if name in self._by_name]
        if len(wanted) == 1:
            yield from wanted[0]
        elif wanted:
            places = {script: place for place, script in enumerate(self.scripts)}
            every = [found for group in wanted for found in group]
            yield from sorted(every, key=lambda f: (places[f[0]], f[0].order[f[1]]))

    def title(self, script: Script, node: cst.CSTNode) -> str:
        """Return what an expression names, in full, or else its text."""
        return self.name(script, node) or script.code(node)

    def makers(self, script: Script, node: cst.CSTNode) -> list[tuple[Script, cst.Call, str]]:
        """Return the calls that a value may come from, each with the full name of its function."""
        calls = [(o.script, o.call) for o in self.origins(script, node) if o.call is not None]
        return [(where, call, self.name(where, call.func) or "") for where, call in calls]

    def made(self, script: Script, call: cst.Call) -> list[tuple[Script, cst.Call, str]]:
        """Return a call, and the calls that made what it calls: `CrossEntropyLoss()(x, y)`."""
        return [(script, call, self.name(script, call.func) or ""), *self.makers(script, call.func)]

    def made_by(self, script: Script, node: cst.CSTNode, *names: str) -> bool:
        """Return whether a value may come from a call of one of these."""
        return any(name in names for _, _, name in self.makers(script, node))

    def constants(self, script: Script, node: cst.CSTNode) -> list[object]:
        """Return the literal values that an expression may have, `...` for a computed one."""
        return [constant(origin.node) for origin in self.origins(script, node)]

    def calls_below(self, script: Script, node: cst.CSTNode) -> Iterator[tuple[Script, cst.Call]]:
        """Yield all calls below a node, and in functions that it calls."""
        for where, found in self.reached(script, node, lambda _, n: isinstance(n, cst.Call)):
            assert isinstance(found, cst.Call)
            yield where, found

    def reaches(
        self,
        script: Script,
        node: cst.CSTNode,
        wanted: Callable[[Script, cst.CSTNode], bool],
        depth: int = DEPTH,
    ) -> bool:
        """Return whether a wanted node is below a node, or in functions that it calls."""
        return next(self.reached(script, node, wanted, depth), None) is not None

    def reached(
        self,
        script: Script,
        node: cst.CSTNode,
        wanted: Callable[[Script, cst.CSTNode], bool],
        depth: int = DEPTH,
        _seen: set[cst.CSTNode] | None = None,
    ) -> Iterator[tuple[Script, cst.CSTNode]]:
        """Yield all wanted nodes below a node, and in functions that it calls."""
        seen = _seen if _seen is not None else set()
        for child in walk_shallow(node):
            if wanted(script, child):
                yield script, child
            if isinstance(child, cst.Call) and depth:
                made = self.function(script, child.func)
                if made is not None and made[1] not in seen:
                    seen.add(made[1])
                    yield from self.reached(made[0], made[1].body, wanted, depth - 1, seen)

    def loops_around(
        self, script: Script, node: cst.CSTNode, depth: int = DEPTH
    ) -> list[tuple[Script, cst.For | cst.While]]:
        """Return the loops around a node, also around the calls of its function, nearest first."""
        found: list[tuple[Script, cst.For | cst.While]] = []
        function: cst.FunctionDef | None = None
        for parent in script.above(node):
            if isinstance(parent, cst.For | cst.While):
                found.append((script, parent))
            if isinstance(parent, cst.FunctionDef):
                function = parent
                break
        if function is not None and depth:
            for where, call in self.uses.get(function, []):
                found += self.loops_around(where, call, depth - 1)
        return found
