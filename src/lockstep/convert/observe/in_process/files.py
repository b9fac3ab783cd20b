"""Note the files that a script makes, what it asked before, and which of them it reads again."""

from __future__ import annotations

import builtins
import os
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from lockstep.probes.patching import replaces
from lockstep.probes.recorder import Recorder
from lockstep.probes.spans import Span, script_frame, span_of, stack

MOST = 200
"""How many files to follow."""


class Files:
    """Files that the script writes, in the order in which it does."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.begun = False
        self.missing: dict[str, list[list[Span]]] = {}
        """Where the script asked for a file or folder that was not there."""
        self.written: dict[str, list[Span]] = {}
        self.early: set[str] = set()
        """Files that were written before training began."""
        recorder.on_backward.append(self._begins)
        recorder.on_end.append(self._note)

        @replaces("stat", os)
        def asked(stat: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return stat(path, *args, **kwargs)
            except FileNotFoundError:
                self._misses(path)
                raise

        @replaces("save", torch)
        def saved(save: Any, obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            self._wrote(f)
            return save(obj, f, *args, **kwargs)

        @replaces("load", torch)
        def loaded(load: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            self._reads(f)
            return load(f, *args, **kwargs)

        @replaces("load", np)
        def loaded_array(load: Any, file: Any, *args: Any, **kwargs: Any) -> Any:
            self._reads(file)
            return load(file, *args, **kwargs)

        @replaces("open", builtins)
        def opened(original: Any, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if isinstance(mode, str) and not recorder.worker:
                if any(letter in mode for letter in "wax+"):
                    self._wrote(file)
                else:
                    self._reads(file)
            return original(file, mode, *args, **kwargs)

    def _begins(self) -> None:
        if not self.begun:
            self.begun = True
            # What is still open is a log, and no file that is made once.
            with suppress(OSError):
                for one in os.scandir("/proc/self/fd"):
                    self.early.discard(os.readlink(one.path))

    def _misses(self, path: Any) -> None:
        if not self.begun and len(self.missing) < MOST and not self.recorder.worker:
            name, places = _name(path), stack()
            if name and places:
                self.missing.setdefault(name, []).append(places)

    def _wrote(self, file: Any) -> None:
        name = _name(file)
        if name and len(self.written) < MOST:
            self.written[name] = stack()
            if self.begun:
                self.early.discard(name)
            else:
                self.early.add(name)

    def _reads(self, file: Any) -> None:
        if _name(file) in self.written:
            frame = script_frame()
            if frame is not None:
                self.recorder.note("reads_own", span=span_of(frame), path=_name(file))

    def _note(self) -> None:
        for name in self.early:
            asked = [
                places
                for path, several in self.missing.items()
                if path == name or name.startswith(path + os.sep)
                for places in several
            ]
            if asked and self.written[name]:
                self.recorder.note("made_file", path=name, written=self.written[name], asked=asked)
        self.early = set()


def _name(file: Any) -> str:
    return os.path.abspath(os.fsdecode(file)) if isinstance(file, str | os.PathLike) else ""
