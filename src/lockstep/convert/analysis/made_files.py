"""Find the statements that make missing files, as a run has shown them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import libcst as cst

from lockstep.convert.analysis.blocks import is_main_guard, last_name
from lockstep.convert.observe import Made
from lockstep.convert.sites import Sites
from lockstep.probes.spans import Span
from lockstep.source.gradients import is_backward
from lockstep.source.project import Project
from lockstep.source.script import Script
from lockstep.source.tree import walk_shallow


class MadeFiles:
    """The statements that the first process of a host runs while the others wait."""

    def __init__(self, project: Project, sites: Sites, made: list[Made]) -> None:
        self.project, self.sites, self.made = project, sites, made

    @cached_property
    def statements(self) -> list[tuple[Script, cst.CSTNode]]:
        """Each ask whether a file is there, and make it if it is not."""
        found: dict[cst.CSTNode, Script] = {}
        for one in self.made:
            place = next(self._covering(one), None)
            if place is not None:
                found[place[1]] = place[0]
        inner = {
            part
            for node, script in found.items()
            for part in self._run_by(script, node)
            if part is not node
        }
        return [(script, node) for node, script in found.items() if node not in inner]

    @cached_property
    def nodes(self) -> set[cst.CSTNode]:
        """Everything that these statements run; other statements may run it, too."""
        return {part for script, node in self.statements for part in self._run_by(script, node)}

    @cached_property
    def alone(self) -> set[cst.CSTNode]:
        """What only these statements run."""
        found = set(self.nodes)
        held: dict[cst.FunctionDef, tuple[Script, set[cst.CSTNode]]] = {}
        for script, node in self.statements:
            for where, part in self.project.reached(script, node, lambda *_: True):
                function = where.function_of(part)
                if function is not None and not script.inside(node, function):
                    held.setdefault(function, (where, set()))[1].add(part)
        for _ in held:
            for function, (where, parts) in held.items():
                uses = self.project.callers(where, function)
                if any(call not in found for _, call in uses):
                    found -= parts
        return found

    def _run_by(self, script: Script, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        for _, part in self.project.reached(script, node, lambda *_: True):
            yield part

    def _covering(self, made: Made) -> Iterator[tuple[Script, cst.CSTNode]]:
        """Yield the statements that both ask and write, the smallest first."""
        for written in made.written:
            script = self.sites.script(written)
            if script is None:
                continue
            for asked in (span for spans in made.asked if self._asks(spans) for span in spans):
                if asked.path != written.path:
                    continue
                theirs = self.sites.statements(asked)
                both = (s for s in self.sites.statements(written) if s in theirs)
                statement = next((s for s in both if not is_main_guard(s)), None)
                if statement is not None and self._may_wait(script, statement):
                    yield script, statement

    def _asks(self, spans: tuple[Span, ...]) -> bool:
        """Return whether the script asks itself, and not `os.makedirs` for its own sake."""
        found = self.sites.call(spans[0]) if spans else None
        return found is None or last_name(found[1]) not in ("makedirs", "mkdir")

    def _may_wait(self, script: Script, statement: cst.CSTNode) -> bool:
        """Return whether a statement comes to its end, and does not train."""
        leaves = (cst.Return, cst.Break, cst.Continue, cst.Yield)
        return not any(
            isinstance(part, leaves) for part in walk_shallow(statement)
        ) and not self.project.reaches(script, statement, is_backward)
