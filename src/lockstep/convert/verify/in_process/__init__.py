"""Probes inside every process of a proof. They derive all chance from the data, not from the rank.

    training_state     where the process is, and what the original leaves for the other runs
    seeds              sets the same seeds at the start and before every batch
    samples            sets the order of samples, and the random numbers of each
    ending             lets a script run on to its end, if that is near
    loader_passes      ends passes over loaders early
    torch_draws        draws torch's random numbers row by row of the global batch
    numpy_draws        does the same for NumPy's
    disabled_features  switches off what would hide random numbers
    weights            sets the first weights, and notes losses and weights
    hand_updates       notices updates of the weights without an optimizer, counts them as steps
    printed_output     notes printed lines, and whether an evaluation came before them
    user_files         keeps the user's files from being overwritten
    whole_passes       installs all of them, but keeps the uneven last batch of a pass
    float64            computes everything in float64; installed before the others, if at all

A module imports only from those above it.
"""

from __future__ import annotations

from lockstep.convert.verify.in_process import (
    disabled_features,
    ending,
    hand_updates,
    loader_passes,
    numpy_draws,
    printed_output,
    samples,
    seeds,
    torch_draws,
    user_files,
    weights,
)
from lockstep.convert.verify.in_process.training_state import Now
from lockstep.probes.recorder import Recorder


def install(recorder: Recorder, *, uneven: bool = False) -> None:
    """Install the parts of every run. The probes call this once torch is imported.

    With `uneven`, a pass over a loader keeps its last batch, also if it is smaller.
    """
    now = Now(recorder)
    seeds.install(now)
    samples.set_order(now)
    samples.set_randomness(now)
    ending.install(now)
    loader_passes.install(now, uneven=uneven)
    torch_draws.install(now)
    numpy_draws.install(now)
    disabled_features.install(now)
    weights.install(now)
    hand_updates.notice(now)
    weights.note_losses(now)
    printed_output.install(now)
    user_files.install(now)
