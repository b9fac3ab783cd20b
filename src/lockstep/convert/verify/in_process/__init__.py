"""Inside every process of a proof: chance is a function of what it belongs to, never of the rank.

    kept       what the run of the original leaves for all others
    now        where the process is: steps, batch, rank
    seeds      the same seeds at the start and before every batch
    order      samplers draw one order, by the number of the pass
    samples    random numbers of a sample, by its index
    passes     where passes over loaders end early
    draws      torch's random numbers, row by row of the global batch
    arrays     NumPy's
    left_out   what computes the same and would hide its random numbers
    weights    the same start; what every step makes of the weights
    by_hand    weights that the script updates itself
    noticed    whether it does
    losses     what backward is called on
    lines      what is printed, and whether an evaluation came before
    links      files of the user's are not written to
    double     by itself and before the others: everything in float64

A module imports only from those above it.
"""

from __future__ import annotations

from lockstep.convert.verify.in_process import (
    arrays,
    draws,
    left_out,
    lines,
    links,
    losses,
    noticed,
    order,
    passes,
    sample_randomness,
    seeds,
    weights,
)
from lockstep.convert.verify.in_process.now import Now
from lockstep.probes.recorder import Recorder

PARTS = (
    seeds,
    order,
    sample_randomness,
    passes,
    draws,
    arrays,
    left_out,
    weights,
    noticed,
    losses,
    lines,
    links,
)


def install(recorder: Recorder) -> None:
    """Called by the probes, once torch is there."""
    now = Now(recorder)
    for part in PARTS:
        part.install(now)
