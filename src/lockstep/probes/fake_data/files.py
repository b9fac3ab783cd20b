"""Supply data files that a script opens itself, if their name tells what they hold.

All other files stay missing.
"""

from __future__ import annotations

import builtins
import gzip
import io
import os
import re
import struct
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from lockstep.probes.fake_data.notes import asked_by_script, note
from lockstep.probes.fake_data.text import WORDS, text
from lockstep.probes.patching import replaces

_CORPUS = re.compile(
    r"((wiki|ptb)\.)?(?P<part>train|valid|validation|val|test|input|corpus)\.(txt|tokens|raw)"
    r"|(tiny)?[-_]?shakespeare([-_]\w+)?\.txt"
)
_TOKENS = re.compile(r"(?P<part>train|val)\.bin")
_MNIST = re.compile(
    r"(?P<part>train|t10k)-(?P<what>images-idx3|labels-idx1)-ubyte(?P<packed>\.gz)?"
)
_ARRAYS = re.compile(r"mnist\.npz")
_WRITES = re.compile(r"open\([^()]*(\([^()]*\))?[^()]*[\"']w[bt]?[\"']|write_text\(")
_DOWNLOADS = re.compile(r"urllib|urlretrieve|requests|wget|gdown|download|https?://", re.I)
_MODULES = 50


def install() -> None:
    """Answer `open` and `exists` for these files."""

    @replaces("open", builtins, io)
    def opened(open_file: Any, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        try:
            return open_file(file, mode, *args, **kwargs)
        except FileNotFoundError:
            content = None if any(letter in mode for letter in "wax+") else known(file)
            if content is None:
                raise
        # A file without a name, because NumPy cannot map a buffer into memory.
        with tempfile.TemporaryFile(buffering=0) as made:
            made.write(content)
            made.seek(0)
            return open_file(os.dup(made.fileno()), mode, *args, **kwargs)

    @replaces("exists isfile", os.path)
    @replaces("exists is_file", Path)
    def found(original: Any, path: Any, *args: Any, **kwargs: Any) -> bool:
        here: bool = original(path, *args, **kwargs)
        return here or (_kind(path) is not None and asked_by_script() and not _made_here())


@cache
def _made_here() -> bool:
    """Return whether the script writes texts, and downloads none: it may make what is missing."""
    files = sorted(Path(sys.argv[0]).resolve().parent.glob("*.py"))[:_MODULES]
    texts = [path.read_text(errors="replace") for path in files]
    return any(map(_WRITES.search, texts)) and not any(map(_DOWNLOADS.search, texts))


def known(file: Any) -> bytes | None:
    """Return the content of a file if its name tells what it holds."""
    kind = _kind(file)
    if kind is None:
        return None
    part = kind.groupdict().get("part") or "train"
    name = os.path.basename(os.fsdecode(file))
    if kind.re is _CORPUS:
        note(f"{name}: a stand-in text of {WORDS:,} words")
        return text(part).encode()
    if kind.re is _TOKENS:
        note(f"{name}: the characters of a stand-in text as 16-bit tokens")
        return text(part).encode("utf-16-le")
    return _arrays(name) if kind.re is _ARRAYS else _mnist(name, kind)


def _kind(file: Any) -> re.Match[str] | None:
    if not isinstance(file, str | bytes | os.PathLike):
        return None
    name = os.path.basename(os.fsdecode(file))
    kinds = (_CORPUS, _TOKENS, _MNIST, _ARRAYS)
    return next((found for kind in kinds if (found := kind.fullmatch(name))), None)


def _mnist(name: str, kind: re.Match[str]) -> bytes:
    """Return one of the four files of MNIST: a header of whole numbers, then bytes."""
    images, classes = _digits("train" if kind["part"] == "train" else "test")
    count = len(images)
    if kind["what"].startswith("images"):
        content = struct.pack(">4i", 2051, count, 28, 28) + images.tobytes()
    else:
        content = struct.pack(">2i", 2049, count) + classes.tobytes()
    note(f"{name}: stand-in data, {count:,} samples of 1x28x28")
    return gzip.compress(content, mtime=0) if kind["packed"] else content


def _arrays(name: str) -> bytes:
    """Return MNIST in the file format of Keras."""
    import numpy as np

    (x_train, y_train), (x_test, y_test) = _digits("train"), _digits("test")
    note(f"{name}: stand-in data, {len(x_train):,} and {len(x_test):,} samples of 1x28x28")
    file = io.BytesIO()
    np.savez(file, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return file.getvalue()


def _digits(part: str) -> tuple[Any, Any]:
    from lockstep.probes.fake_data.pictures import TEST, TRAIN, classes_of, pictures

    classes = classes_of("MNIST", part, TRAIN if part == "train" else TEST, 10)
    return pictures("MNIST", part, (28, 28, 1), classes)[..., 0], classes.astype("uint8")
