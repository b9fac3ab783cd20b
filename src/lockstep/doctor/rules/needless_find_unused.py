"""DDP searches for unused parameters in every step although there are none."""

from __future__ import annotations

from lockstep.doctor.findings import Rule

RULE = Rule(
    name="needless_find_unused",
    code="LS13",
    summary="find_unused_parameters=True searches the whole graph in every step for nothing.",
    advice="Remove find_unused_parameters=True from the wrap.",
)
