"""Compare two programs line by line, and show the difference on a page."""

from __future__ import annotations

from difflib import unified_diff
from html import escape

# Half transparent, to work on light and on dark backgrounds.
_GROUND = {"+": "rgba(47, 158, 110, 0.25)", "-": "rgba(214, 69, 61, 0.22)"}
_STYLE = (
    "overflow-x: auto; color: var(--foreground, inherit); margin: 0; padding: 0.5rem 0; "
    "font: 13px/1.5 ui-monospace, monospace"
)


def diff(old: str, new: str) -> str:
    """Return the removed and added lines with two lines of context; empty if nothing differs.

    >>> print(diff("a\\nb\\n", "a\\nc\\n"))
    @@ -1,2 +1,2 @@
     a
    -b
    +c
    """
    lines = list(unified_diff(old.splitlines(), new.splitlines(), n=2, lineterm=""))
    return "\n".join(lines[2:])


def shown(text: str) -> str:
    """Format a diff as HTML."""
    lines = []
    for line in text.splitlines():
        ground = _GROUND.get(line[:1])
        style = f"background: {ground}" if ground else "opacity: 0.75"
        lines.append(f'<span style="display: block; {style}">{escape(line) or " "}</span>')
    return f'<pre style="{_STYLE}">{"".join(lines)}</pre>'
