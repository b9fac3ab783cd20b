"""Answer for the size of the terminal: a watched script has none, and some need one to start."""

from __future__ import annotations

import io
import os
from typing import Any

from lockstep.probes.patching import replaces


def install() -> None:
    """Answer `stty size`, which many progress bars call."""

    @replaces("popen", os)
    def asked(popen: Any, cmd: str, *args: Any, **kwargs: Any) -> Any:
        stty = cmd.split() == ["stty", "size"]
        return io.StringIO("24 80\n") if stty else popen(cmd, *args, **kwargs)
