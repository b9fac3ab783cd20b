"""Probes inside every process of a proof. They derive all chance from the data, not from the rank.

    original_run         what the run of the original leaves for the other runs
    training_state       where the process is: steps, batch, rank
    seeds                sets the same seeds at the start and before every batch
    sample_order         lets samplers draw one order, by the number of the pass
    sample_randomness    derives the random numbers of a sample from its index
    loader_passes        ends passes over loaders early
    torch_draws          draws torch's random numbers row by row of the global batch
    numpy_draws          does the same for NumPy's
    disabled_features    switches off what would hide random numbers
    weights              sets the first weights, and notes the weights after every step
    hand_updates         counts updates of the weights without an optimizer as steps
    notice_hand_updates  finds out whether a script makes such updates
    losses               notes the losses
    printed_output       notes printed lines, and whether an evaluation came before them
    user_files           keeps the user's files from being overwritten
    float64              computes everything in float64; installed before the others, if at all

A module imports only from those above it.
"""

from __future__ import annotations

from lockstep.convert.verify.in_process import (
    disabled_features,
    loader_passes,
    losses,
    notice_hand_updates,
    numpy_draws,
    printed_output,
    sample_order,
    sample_randomness,
    seeds,
    torch_draws,
    user_files,
    weights,
)
from lockstep.convert.verify.in_process.training_state import Now
from lockstep.probes.recorder import Recorder

PARTS = (
    seeds,
    sample_order,
    sample_randomness,
    loader_passes,
    torch_draws,
    numpy_draws,
    disabled_features,
    weights,
    notice_hand_updates,
    losses,
    printed_output,
    user_files,
)
"""The parts that every run installs, in this order."""


def install(recorder: Recorder) -> None:
    """Install all parts. The probes call this once torch is imported."""
    now = Now(recorder)
    for part in PARTS:
        part.install(now)
