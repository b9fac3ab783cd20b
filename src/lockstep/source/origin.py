"""A place that a value may come from."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from lockstep.source.script import Script


@dataclass(frozen=True, eq=False)
class Origin:
    """An expression that a value may come from, and the script that it stands in."""

    script: Script
    node: cst.CSTNode
    index: tuple[int | str, ...] = ()
    """The part of the expression that is meant, if it gives several values."""

    @property
    def call(self) -> cst.Call | None:
        """The expression, if it is a call and its whole result is meant."""
        return self.node if isinstance(self.node, cst.Call) and not self.index else None
