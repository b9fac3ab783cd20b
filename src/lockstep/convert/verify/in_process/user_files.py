"""Protect the user's files: writing to a link in the scratch folder makes a copy first."""

from __future__ import annotations

import builtins
import io
import os
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import torch

from lockstep.convert.verify.in_process.training_state import Now


def install(now: Now) -> None:
    """Patch open and torch.save."""
    open_file, save = builtins.open, torch.save

    @wraps(open_file)
    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if isinstance(mode, str) and any(letter in mode for letter in "wax+"):
            _part(file, empty="w" in mode)
        return open_file(file, mode, *args, **kwargs)

    @wraps(save)
    def saved(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        _part(f, empty=True)
        return save(obj, f, *args, **kwargs)

    builtins.open = io.open = opened
    torch.save = saved


def _part(file: Any, *, empty: bool) -> None:
    """Replace a link by a copy, or by an empty file if all content will be new."""
    if not isinstance(file, str | os.PathLike) or not os.path.islink(file):
        return
    path = Path(file)
    # Another rank may do the same at the same time.
    with suppress(FileNotFoundError):
        content = b"" if empty else path.read_bytes()
        path.unlink()
        path.write_bytes(content)
