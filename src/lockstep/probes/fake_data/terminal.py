"""Answer for the size of the terminal: a watched script has none, and some need one to start."""

from __future__ import annotations

import io
import os
from functools import wraps
from typing import Any


def install() -> None:
    """Answer `stty size`, which many progress bars call."""
    popen = os.popen

    @wraps(popen)
    def asked(cmd: str, *args: Any, **kwargs: Any) -> Any:
        return (
            io.StringIO("24 80\n")
            if cmd.split() == ["stty", "size"]
            else popen(cmd, *args, **kwargs)
        )

    os.popen = asked
