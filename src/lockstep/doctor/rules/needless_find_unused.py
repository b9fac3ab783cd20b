"""DDP looks for unused parameters in every step, and there are none."""

from __future__ import annotations

from lockstep.doctor.findings import Rule

RULE = Rule(
    name="needless_find_unused",
    code="LS13",
    summary="find_unused_parameters=True walks the whole graph in every step, for nothing.",
    advice="Wrap without find_unused_parameters.",
)
