"""The first thing in every watched process: notes are opened, and probes wait for torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from lockstep import world
from lockstep.probes.imports import behind
from lockstep.probes.recorder import Recorder, dump_on_request
from lockstep.probes.settings import Settings


def enter() -> None:
    """Called by sitecustomize."""
    path = world.watched_by()
    if path is None:
        return
    settings = Settings.read(path)
    recorder = Recorder(settings)
    dump_on_request(settings)
    if settings.stand_in_data:
        from lockstep.probes import fake_data

        fake_data.install(recorder)
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
        return behind(find_spec(name), self._install)

    def _install(self, _: ModuleType) -> None:
        from lockstep.probes.install import install

        install(self.recorder)
