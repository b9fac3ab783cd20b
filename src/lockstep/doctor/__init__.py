"""Find data-parallel bugs in any script: one rule per file."""

from lockstep.doctor.check import Checked, check
from lockstep.doctor.findings import Finding, Fix, Rule
from lockstep.doctor.registry import RULES

__all__ = ["RULES", "Checked", "Finding", "Fix", "Rule", "check"]
