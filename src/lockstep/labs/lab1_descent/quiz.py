"""The quiz of lab 1, about the measurements."""

from __future__ import annotations

from statistics import median

import numpy as np

from lockstep.labs.lab1_descent.batch_sizes import BatchSizes, reached
from lockstep.labs.lab1_descent.neuron import SAMPLES, descend, samples
from lockstep.labs.shared.quiz import Question

IMAGES = 1437
NOISE = 3.0


def questions(found: BatchSizes) -> list[Question]:
    """Return the five questions."""
    return [_throughput(found), _soonest(found), _ragged(found), _limit(), _spread(found)]


def _throughput(found: BatchSizes) -> Question:
    small, large = found.sizes[0], found.sizes[-1]
    slow, quick = median(found.throughput[0]), median(found.throughput[-1])
    ratio, batches = quick / slow, large / small
    near = (batches, 1.0, ratio / 4, ratio * 3, ratio * 10)
    wrong = dict.fromkeys(_times(v) for v in near if not 0.8 < v / ratio < 1.25)
    return Question(
        text=f"How much did the throughput grow from batch {small} to batch {large} here?",
        choices=(_times(ratio), *list(wrong)[:3]),
        why=f"{slow:,.0f} images/s became {quick:,.0f}. The batch is {batches:.0f} times as large: "
        "more samples share the fixed costs of a step, until the arithmetic itself fills the "
        "device.",
    )


def _soonest(found: BatchSizes) -> Question:
    target = _target(found)
    ends = {
        size: median([end[0] if end else np.inf for end in (reached(c, target) for c in runs)])
        for size, runs in zip(found.sizes, found.curves, strict=True)
    }
    order = sorted(ends, key=lambda size: ends[size])
    best, quickest = order[0], found.sizes[int(np.argmax([median(t) for t in found.throughput]))]
    others = list(dict.fromkeys((quickest, found.sizes[0], found.sizes[-1], *order[::-1])))
    return Question(
        text=f"Which of these batch sizes reached accuracy {target:g} first, by the median?",
        choices=tuple(str(s) for s in (best, *[s for s in others if s != best][:3])),
        why=f"Batch {best} needed {ends[best]:.2f} s. The highest throughput was at batch "
        f"{quickest}, "
        + (
            "the same one here."
            if quickest == best
            else "but at the same rate it takes fewer steps per epoch, so it needs more epochs."
        ),
    )


def _ragged(found: BatchSizes) -> Question:
    size = next(s for s in reversed(found.sizes) if IMAGES % s)
    whole, left = divmod(IMAGES, size)
    return Question(
        text=f"{IMAGES:,} images in batches of {size}: how many steps does an epoch have, "
        "and how large is the last batch?",
        choices=(
            f"{whole + 1} steps, the last on {left}",
            f"{whole} steps, {left} images are left out",
            f"{whole + 1} steps, all on {size}",
        ),
        why=f"{whole} x {size} = {whole * size:,}, and the remaining {left} are a batch too. "
        f"Leaving them out loses {left / IMAGES:.0%} of the data; filling the batch up with copies "
        "counts some images twice.",
    )


def _limit() -> Question:
    limit = stable_rate()
    fine, lost = 0.9 * limit, 1.1 * limit
    end = descend(fine, SAMPLES, NOISE, 200).loss[-1]
    return Question(
        text=f"Gradient descent on the neuron's {SAMPLES} samples is stable up to a rate of "
        f"{limit:.3f}. What happens at {lost:.3f}?",
        choices=(
            "Every step overshoots more than the last: the loss grows without end",
            "It takes 10% fewer epochs",
            "It converges to another minimum",
            "It swings with a constant width and then settles",
        ),
        why=f"Every step multiplies the steepest direction by 1 - rate x curvature: beyond "
        f"{limit:.3f} that is below -1. At {fine:.3f} the loss reached {end:.3g}; at {lost:.3f} "
        f"it was {descend(lost, SAMPLES, NOISE, 200).loss[-1]:.2g} after 200 epochs.",
    )


def stable_rate() -> float:
    """Return 2 divided by the largest curvature of the loss over all samples."""
    x, _ = samples(NOISE)
    curvature = 2.0 * np.array([[np.mean(x * x), np.mean(x)], [np.mean(x), 1.0]])
    return float(2.0 / np.linalg.eigvalsh(curvature)[-1])


def _spread(found: BatchSizes) -> Question:
    target = _target(found)
    place = next(p for p, runs in enumerate(found.curves) if all(reached(c, target) for c in runs))
    ends = [end[0] for end in (reached(c, target) for c in found.curves[place]) if end]
    low, high = min(ends), max(ends)
    return Question(
        text=f"At batch {found.sizes[place]}, the runs reached accuracy {target:g} in {low:.2f} to "
        f"{high:.2f} s, and only the seed differed. One run of another batch size needs "
        f"{(low + high) / 2:.2f} s. Which is faster?",
        choices=(
            "You cannot know: one run lies within the spread of the seeds",
            "The other one, because it beats the slowest of these runs",
            f"Batch {found.sizes[place]}, because its best run is faster",
        ),
        why=f"The seed alone made a difference of {high / low - 1:.0%}. Repeat both and compare "
        "medians and ranges: time to accuracy is always noisy.",
    )


def _target(found: BatchSizes) -> float:
    """Return an accuracy, in steps of 0.01, that all runs of some batch size reached."""
    worst = [min(max(a for _, a in curve) for curve in runs) for runs in found.curves]
    return int(100 * max(worst)) / 100 - 0.02


def _times(ratio: float) -> str:
    return f"{float(f'{ratio:.2g}'):g} times"
