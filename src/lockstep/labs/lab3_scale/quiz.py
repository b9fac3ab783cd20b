"""The quiz of lab 3, about the measurements."""

from __future__ import annotations

from statistics import fmean, median

from lockstep.labs.lab3_scale import warmup
from lockstep.labs.lab3_scale.batch_norm import Norms
from lockstep.labs.lab3_scale.noise_scale import TARGETS, swept
from lockstep.labs.lab3_scale.rate_grid import Explored
from lockstep.labs.lab3_scale.runs import Runs, reached
from lockstep.labs.lab3_scale.throughput import Throughput, amdahl, serial_share
from lockstep.labs.lab3_scale.warmup import Warmups
from lockstep.labs.shared.quiz import Question, distinct

ENDLESS = 1e6
"""A number of replicas that stands for infinitely many."""


def questions(
    speed: Throughput, runs: Runs, explored: Explored, warmups: Warmups, norms: Norms
) -> list[Question]:
    """Return the five questions, one for each part of the lab."""
    return [
        _limit(speed),
        _first(runs),
        _doubling(explored),
        _start(warmups),
        _statistics(norms),
    ]


def _limit(speed: Throughput) -> Question:
    """Ask for the limit by Amdahl's law."""
    n = speed.replicas[-1]
    ratio = median(speed.ratio(speed.shared)[-1])
    share = serial_share(n, ratio)
    most = amdahl(ENDLESS, share)

    def shown(value: float) -> str:
        return f"about {value:.1f}x" if value < 1000 else "there is no limit: nothing is serial"

    others = [shown(v) for v in (n, 2 * most + 1, 4 * most + 3, 64, ENDLESS)]
    return Question(
        text=f"One batch of {speed.batch} samples, cut for {n} replicas, ran {ratio:.2f} times as "
        "fast as on one. By Amdahl's law, how fast could it get with any number of replicas?",
        choices=distinct(shown(most), others),
        why=f"{ratio:.2f}x on {n} replicas means that {share:.1%} of the time does not shrink. "
        f"So the speedup is at most 1 / {share:.3f}."
        if share > 1 / ENDLESS
        else f"{ratio:.2f}x on {n} replicas means that all of the time shrinks.",
    )


def _first(runs: Runs) -> Question:
    """Ask which run reached a target first."""
    each = runs.each()
    for target in (0.95, 0.9, 0.8, 0.6, 0.0):
        times = {
            run.name: run.seconds[at] for run in each if (at := reached(run, target)) is not None
        }
        if times:
            break
    order = sorted(times, key=lambda name: times[name])
    missed = [run.name for run in each if run.name not in times]
    later = [name for name in order if times[name] > times[order[0]]]
    ends = "; ".join(f"{name}: {times[name]:.2f} s" for name in order)
    return Question(
        text=f"Which run reached an accuracy of {target:g} first, in seconds?",
        choices=distinct(order[0], [*later, *missed, "none of them"]),
        why=f"Measured here: {ends}. The number of steps times their length counts: more replicas "
        "shorten a step, but too large a batch or a wrong rate needs more steps.",
    )


def _doubling(explored: Explored) -> Question:
    """Ask how many steps doubling the batch saves past the critical batch."""
    for target in reversed(TARGETS):
        if fit := swept(explored, target):
            break
    else:
        raise ValueError("no training run of the grid reached any of the targets.")
    curve, _ = fit
    batch = 256
    saved = curve.saved_by_doubling(batch)
    # Leave out values so near that they could pass as rounding.
    far = [share for share in (0.5, 0.25, 0.1, 0.01, 0.75) if abs(share - saved) > 0.05]
    others = [f"{share:.0%}" for share in far]
    return Question(
        text=f"The critical batch was {curve.critical_batch:.0f} samples, for a test loss of "
        f"{target:g}. What share of the steps does a batch of {2 * batch} save over {batch}?",
        choices=distinct(f"{saved:.0%}", others),
        why=f"S = {curve.least_steps:.0f} (1 + {curve.critical_batch:.0f} / B): "
        f"{curve.steps(batch):.1f} steps at {batch}, {curve.steps(2 * batch):.1f} at {2 * batch}. "
        "Doubling saves half of the steps only far below the critical batch.",
    )


def _start(warmups: Warmups) -> Question:
    """Ask where a warmup begins."""
    cell = warmup.found(warmups)
    rate, n = cell.rate, cell.replicas
    choices = [rate / n, rate, rate / n**2, 0.0]
    return Question(
        text=f"{n} replicas should train at a rate of {rate:g}. At which rate does the first step "
        "of a gradual warmup begin?",
        choices=tuple(f"{value:.3g}" for value in choices),
        why=f"At the rate of one replica, {rate:g} / {n} (all replicas, not those of one node). "
        f"Here this run ended at {cell.without:.1%} without a warmup and at "
        f"{cell.rescued:.1%} with {cell.warmup} epochs of it.",
    )


def _statistics(norms: Norms) -> Question:
    """Ask whether small local batches harm batch norm."""
    at = len(norms.rates) - 1
    own, synced = norms.arrays["local"][0, -1, at], norms.arrays["synced"][-1, at]
    gap = fmean(synced) - fmean(own)
    apart = own.max() < synced.min() or synced.max() < own.min()
    texts = (
        "Synchronised ones: every seed was better with them",
        "Each replica's own: every seed was better with them",
        "Neither: the seeds of both overlapped",
    )
    right = (0 if gap > 0 else 1) if apart else 2
    small, batch = norms.locals[0], norms.batch
    return Question(
        text=f"With a global batch of {batch} on {batch // small} replicas, each has {small} "
        "samples. Which batch-norm statistics gave the better accuracy here?",
        choices=texts,
        right=right,
        why=f"Own statistics: {fmean(own):.1%} ({own.min():.1%} to {own.max():.1%}); synchronised: "
        f"{fmean(synced):.1%} ({synced.min():.1%} to {synced.max():.1%}). The mean and variance of "
        f"{small} samples tell little about the rest.",
    )
