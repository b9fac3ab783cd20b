"""Learn from a program which of its conditions hold while several ranks train."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from lockstep.source.callers import Callers
from lockstep.source.conditions import is_true, sides_of
from lockstep.source.script import Script, Use
from lockstep.source.tree import dotted

_BEGINS = re.compile(
    r"\.(DistributedDataParallel|FullyShardedDataParallel|init_process_group|fully_shard)$"
)
_DEEP = 3
"""How many functions around a place are looked at."""


class Learned(Callers):
    """Conditions under which a program wraps its model or starts its ranks."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        super().__init__(scripts)
        self._learned: dict[str, bool] | None = None

    def learned(self) -> dict[str, bool]:
        """Return conditions that hold wherever the program wraps a model or starts its ranks."""
        if self._learned is None:
            self._learned = {}
            uses, _ = self.uses, self.handed
            self._busy += 1
            groups: dict[str, list[Use]] = {}
            for script in self.scripts:
                for call in script.calls:
                    begins = _BEGINS.search(self.name(script, call.func) or "")
                    if begins is not None:
                        groups.setdefault(begins[1], []).append((script, call))
            found: dict[str, set[bool]] = {}
            for group in groups.values():
                sides = [self._around(script, call, uses, _DEEP) for script, call in group]
                for key, side in set.intersection(*sides):
                    found.setdefault(key, set()).add(side)
            for script in self.scripts:
                for node in script.order:
                    # `ddp = config["kind"] == "ddp"`
                    if type(node) is cst.Assign and isinstance(node.value, cst.Comparison):
                        name = dotted(node.targets[0].target) or ""
                        last = name.rsplit(".", 1)[-1]
                        known = found.get(last, {True} if is_true(last) else set())
                        if len(known) == 1:
                            for key, side in sides_of(node.value, True in known):
                                found.setdefault(key, set()).add(side)
            self._busy -= 1
            self._learned = {key: sides.pop() for key, sides in found.items() if len(sides) == 1}
        return self._learned

    def _around(
        self, script: Script, node: cst.CSTNode, uses: dict[cst.CSTNode, list[Use]], deep: int
    ) -> set[tuple[str, bool]]:
        """Return the conditions around a place, and around all calls of its function."""
        found: set[tuple[str, bool]] = set()
        below = node
        for parent in script.above(node):
            if isinstance(parent, cst.If | cst.IfExp) and below is not parent.test:
                found |= sides_of(parent.test, below is parent.body)
            if isinstance(parent, cst.FunctionDef):
                calls = uses.get(parent, []) if deep else []
                around = [self._around(where, call, uses, deep - 1) for where, call in calls]
                own = {p.name.value for p in parent.params.params}
                found = {pair for pair in found if pair[0] not in own}
                return found | (set.intersection(*around) if around else set())
            below = parent
        return found
