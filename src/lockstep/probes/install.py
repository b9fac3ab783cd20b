"""All probes, set once torch is there."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from lockstep.probes.record import Recorder


def install(recorder: Recorder) -> None:
    """Set them."""
    settings = recorder.settings
    if settings.gpus is not None:
        from lockstep.probes import standin

        standin.install(settings.gpus)

        def tell(*_: object) -> None:
            recorder.note("stood_in", what=standin.touched())

        recorder.on_end.append(tell)
        # Also early, for a run that never comes to its end.
        recorder.on_backward.append(once(tell))
    if settings.stand_in_data:
        from lockstep.probes.pretend import splits

        splits.install()
    from lockstep.probes import (
        collectives,
        files,
        loaders,
        optimizers,
        oracle,
        output,
        randomness,
        scalers,
        schedulers,
        wrapper,
    )

    recorder.note("start")
    for name in settings.early:
        import_module(name).install(recorder)
    if settings.watch:
        for probe in (
            output,
            files,
            collectives,
            randomness,
            loaders,
            wrapper,
            optimizers,
            scalers,
            schedulers,
        ):
            probe.install(recorder)
        oracle.install(recorder)


def once(call: Callable[[], None]) -> Callable[[], None]:
    """The call, made the first time only."""
    left = [call]

    def made() -> None:
        if left:
            left.pop()()

    return made
