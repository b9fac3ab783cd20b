"""All probes, set once torch is there."""

from __future__ import annotations

from lockstep.probes.record import Recorder


def install(recorder: Recorder) -> None:
    """Set them."""
    settings = recorder.settings
    if settings.gpus is not None:
        from lockstep.probes import standin

        standin.install(settings.gpus)
    from lockstep.probes import (
        collectives,
        files,
        loaders,
        optimizers,
        oracle,
        output,
        randomness,
        schedulers,
        wrapper,
    )

    recorder.note("start")
    if settings.watch:
        for probe in (
            output,
            files,
            collectives,
            randomness,
            loaders,
            wrapper,
            optimizers,
            schedulers,
        ):
            probe.install(recorder)
    oracle.install(recorder)
