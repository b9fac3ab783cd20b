"""The first thing in every watched process: notes are opened, and probes wait for torch."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from lockstep import world
from lockstep.probes.record import Recorder
from lockstep.probes.settings import Settings

SIGNAL = signal.SIGRTMIN + 7 if sys.platform == "linux" else signal.SIGUSR2
"""Asks a process for its stack. Nobody else uses it: scripts like USR1 and USR2 for themselves."""


def enter() -> None:
    """Called by sitecustomize."""
    path = world.watched_by()
    if path is None:
        return
    settings = Settings.read(path)
    recorder = Recorder(settings)
    stack = Path(settings.folder, f"{os.getpid()}.stack")
    # Kept open as long as the process lives.
    faulthandler.register(SIGNAL, file=stack.open("w"), all_threads=True)
    sys.meta_path.insert(0, _AfterTorch(recorder))


class _AfterTorch:
    """Installs the probes when `import torch` is over, before the script goes on."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Torch's own spec, with the probes behind its loader."""
        if name != "torch" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            load = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                del loader.exec_module
                from lockstep.probes.install import install

                install(self.recorder)

            loader.exec_module = exec_module
        return spec
