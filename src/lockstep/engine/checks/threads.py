"""Find threads that a program has started: what they change is not in step with the training."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path


def threads_of(files: Sequence[Path]) -> list[str]:
    """Return the names of running threads whose code is in one of these files."""
    found = []
    for thread in threading.enumerate():
        if thread is threading.main_thread():
            continue
        target = getattr(thread, "_target", None)
        code = getattr(getattr(target, "__func__", target), "__code__", None)
        module = sys.modules.get(type(thread).__module__)
        places = [getattr(code, "co_filename", None), getattr(module, "__file__", None)]
        if any(place and Path(place).resolve() in files for place in places):
            kind = type(thread).__name__
            found.append(getattr(target, "__name__", "") if kind == "Thread" else kind)
    return sorted(found)
