"""Read text that every machine with Python has: the source of the standard library."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch

from lockstep.data.dataset import Data, Windows
from lockstep.errors import DataError

SKIPPED_FOLDERS = {
    *("site-packages", "dist-packages", "__pycache__"),
    *("test", "tests", "idle_test", "idlelib"),
}
# Building or installing Python writes these files: they differ between machines.
SKIPPED_FILES = ("_sysconfigdata", "sitecustomize", "usercustomize")
TEST_SHARE = 0.1


def stdlib(length: int = 128, *, megabytes: float = 4.0) -> Data:
    """Cut the source of the standard library into windows of `length` bytes.

    The last tenth of the text is the test. The text depends on the Python version (3.11.7 and
    3.11.8 differ): compare runs of one version.
    """
    if length < 1:
        raise DataError(f"length={length}: give 1 or more, such as 128.")
    root = Path(sysconfig.get_path("stdlib"))
    text = _mixture(root, int(megabytes * 1_000_000))
    cut = len(text) - int(len(text) * TEST_SHARE)
    if len(text) - cut <= length:
        raise DataError(
            f"The test text, {len(text) - cut} bytes from {root}, holds no window of "
            f"length={length}: give a smaller length, or more than megabytes={megabytes}."
        )
    tokens = torch.frombuffer(text, dtype=torch.uint8)
    return Data(train=Windows(tokens[:cut], length), test=Windows(tokens[cut:], length))


def _mixture(root: Path, limit: int) -> bytearray:
    """Return the first `limit` bytes of the sources under `root`, each ended by a zero byte.

    The hash of their names sets the order: by name, the test text would be `xml` and `zipfile`.
    """
    names = sorted(_sources(root), key=lambda name: hashlib.sha256(os.fsencode(name)).digest())
    text = bytearray()
    for name in names:
        if len(text) >= limit:
            break
        try:
            text += (root / name).read_bytes() + b"\0"
        except OSError:
            continue
    return text[: max(limit, 0)]


def _sources(root: Path) -> Iterator[str]:
    """Yield the Python files under `root`, relative to it."""
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in SKIPPED_FOLDERS]
        for name in files:
            if name.endswith(".py") and not name.startswith(SKIPPED_FILES):
                yield (Path(folder) / name).relative_to(root).as_posix()
