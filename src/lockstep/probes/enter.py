"""Start watching a process, before its script runs."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any

from lockstep import world
from lockstep.probes.imports import behind
from lockstep.probes.recorder import Recorder, dump_on_request
from lockstep.probes.settings import Settings


def enter() -> None:
    """Start the recorder and install the probes, at once or when the script imports torch.

    A new interpreter calls this function through sitecustomize. A forked process calls it before
    its script starts.
    """
    path = world.watched_by()
    if path is None:
        return
    settings = Settings.read(path)
    recorder = Recorder(settings)
    dump_on_request(settings)
    if settings.stand_in_data:
        from lockstep.probes import fake_data

        fake_data.install(recorder)
    if "torch" in sys.modules:
        _install(recorder)
    else:
        sys.meta_path.insert(0, _AfterTorch(recorder))


class _AfterTorch:
    """Installs the probes at the end of `import torch`."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return torch's own spec, with a loader that then installs the probes."""
        if name != "torch" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        return behind(find_spec(name), lambda torch: _install(self.recorder))


def _install(recorder: Recorder) -> None:
    from lockstep.probes.install import install

    install(recorder)
