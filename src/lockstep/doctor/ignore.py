"""Honor comments that keep a line as it is: `# lockstep: ignore[LS01]`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lockstep.doctor.findings import Finding

_IGNORE = re.compile(r"#\s*lockstep:\s*ignore(?:\[([\w\s,.-]*)\])?")


def ignored(finding: Finding, lines: Sequence[str]) -> bool:
    """Return whether the finding's first or last line ignores its rule, or all rules."""
    for number in {finding.line, finding.end_line}:
        note = _IGNORE.search(lines[number - 1]) if number <= len(lines) else None
        if note is not None:
            names = {name.strip() for name in (note[1] or "").split(",")} - {""}
            if not names or names & {finding.rule.name, finding.rule.code}:
                return True
    return False
