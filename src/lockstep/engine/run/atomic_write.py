"""Replace files as a whole. This module imports no torch: pages are written without it."""

from __future__ import annotations

import os
from pathlib import Path

from lockstep.errors import RunError


def replace_file(path: Path, content: bytes) -> None:
    """Write `content` so that a crash leaves either the whole old file or the whole new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
