"""Find the expression of a script that a run has named by its place."""

from __future__ import annotations

import libcst as cst

from lockstep.probes.spans import Span
from lockstep.source.script import Script


class Sites:
    """The calls of several scripts by the place where they end."""

    def __init__(self, scripts: list[Script]) -> None:
        self._scripts = {str(script.path.resolve()): script for script in scripts}
        self._calls: dict[str, dict[tuple[int, int], cst.Call]] = {}

    def script(self, span: Span) -> Script | None:
        """Return the script that a place is in."""
        return self._scripts.get(span.path)

    def call(self, span: Span) -> tuple[Script, cst.Call] | None:
        """Return the call at a place, and its script; None if the place is no call of a script."""
        script = self.script(span)
        if script is None:
            return None
        if span.path not in self._calls:
            self._calls[span.path] = {_end(script, call): call for call in script.calls}
        call = self._calls[span.path].get((span.line, span.column))
        return None if call is None else (script, call)

    def statements(self, span: Span) -> list[cst.CSTNode]:
        """Return the statements that hold a place, the smallest first, within its function."""
        script = self.script(span)
        if script is None:
            return []
        found: list[cst.CSTNode] = [
            node
            for node in script.order
            if isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement)
            and script.place(node).start.line <= span.first
            and (script.place(node).end.line, script.place(node).end.column)
            >= (span.line, span.column)
        ]
        found.sort(key=lambda node: script.order[node], reverse=True)
        ends = (n for n, node in enumerate(found) if isinstance(node, cst.FunctionDef))
        return found[: next(ends, len(found))]


def _end(script: Script, call: cst.Call) -> tuple[int, int]:
    """Return the line and the column, in bytes, where a call ends."""
    end = script.place(call).end
    before = script.lines[end.line - 1][: end.column]
    return end.line, len(before.encode())


def span_of(script: Script, call: cst.Call) -> Span:
    """Return the place of a call, as a run would name it."""
    line, column = _end(script, call)
    return Span(str(script.path.resolve()), line, column, script.place(call).start.line)
