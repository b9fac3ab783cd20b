"""Install the probes in a process that has imported torch."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from lockstep.probes.recorder import Recorder, skip

WATCHES = (
    *("hooks.output", "hooks.files", "hooks.collectives", "hooks.randomness", "hooks.loaders"),
    *("hooks.ddp", "hooks.optimizers", "hooks.scalers", "hooks.schedulers", "oracle"),
)
"""The probes, in the order in which they are installed."""


def install(recorder: Recorder) -> None:
    """Install the probes that the recorder's settings ask for."""
    settings = recorder.settings
    if settings.gpus is not None:
        from lockstep.probes import fake_cuda

        fake_cuda.install(settings.gpus)

        def tell() -> None:
            recorder.note("fake_cuda", what=fake_cuda.answered())

        recorder.on_end.append(tell)
        # Also once early, for a run that never reaches its end.
        recorder.on_backward.append(cache(tell))
    if settings.stand_in_data:
        from lockstep.probes.fake_data import splits

        splits.install()
    recorder.note("start")
    for name in settings.early:
        module = import_module(name)
        skip(module)
        module.install(recorder)
    if settings.watch:
        for name in WATCHES:
            import_module(f"lockstep.probes.{name}").install(recorder)
