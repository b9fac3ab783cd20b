"""Record the files that each rank writes and loads."""

from __future__ import annotations

import builtins
import io
import os
from contextlib import suppress
from typing import Any

import torch

from lockstep.probes.patching import replaces
from lockstep.probes.recorder import Recorder, place, within_torch

MOST = 2000
"""How many writes to record. A script that makes more is not saving checkpoints."""
CHECKPOINTS = {".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".pkl", ".npz"}
_PASSING = ("/dev/", "/proc/", "/sys/")


def install(recorder: Recorder) -> None:
    """Watch open, rename, torch.save, torch.load and safetensors."""
    left = MOST
    own = recorder.settings.folder

    def wrote(how: str, path: Any, where: str) -> None:
        nonlocal left
        try:
            name = os.path.abspath(os.fsdecode(path))
        except (TypeError, ValueError):
            return
        if left <= 0 or name.startswith(_PASSING) or name.startswith(own):
            return
        # A lock holds no data, and every rank opens it.
        if not where or "__pycache__" in name or name.endswith((".pyc", ".so", ".lock")):
            return
        if os.path.splitext(name)[1] in CHECKPOINTS:
            how = "saved"
        left -= 1
        recorder.note("wrote", path=name, how=how, place=where, step=recorder.step)
        # Another rank may read half of the file, fail, and take this rank down with it.
        recorder.flush()

    # Not an audit hook: Python calls those hundreds of times per step, for each id() in torch.
    @replaces("open", builtins, io)
    def opened(open_file: Any, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        writes = isinstance(mode, str) and any(letter in mode for letter in "wax+")
        named = isinstance(file, str | bytes | os.PathLike)
        if writes and named and not recorder.worker and not within_torch(2):
            wrote("appended" if "a" in mode else "opened", file, place(2))
        return open_file(file, mode, *args, **kwargs)

    @replaces("rename replace", os)
    def renamed(original: Any, source: Any, target: Any, **kwargs: Any) -> None:
        original(source, target, **kwargs)
        if not recorder.worker and not within_torch(2):
            wrote("renamed", target, place(2))

    @replaces("save", torch)
    def saved(save: Any, obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        where = place(2)
        path = f if isinstance(f, str | os.PathLike) else getattr(f, "name", None)
        if isinstance(path, str | os.PathLike):
            wrote("saved", path, where)
        recorder.now(f"torch.save at {where}")
        return save(obj, f, *args, **kwargs)

    @replaces("load", torch)
    def loaded(load: Any, f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        path = f if isinstance(f, str | os.PathLike) else getattr(f, "name", "")
        where, locations = place(2), set[str]()

        def located(_: Any, location: str) -> Any:
            # Returning None restores the storage as torch would.
            locations.add(location)

        found = load(f, located if map_location is None else map_location, *args, **kwargs)
        recorder.note(
            "loaded",
            path=os.path.abspath(path) if path else "",
            mapped=map_location is not None,
            place=where,
            locations=sorted(locations),
        )
        return found

    with suppress(ImportError):
        import safetensors.torch

        @replaces("save_file", safetensors.torch)
        def saved_file(save: Any, tensors: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
            wrote("saved", filename, place(2))
            return save(tensors, filename, *args, **kwargs)
