"""The quiz of lab 0, about the measurements."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.labs.lab0_why.bytes_sent import memory, spoken
from lockstep.labs.lab0_why.learning_curve import Learning, most, samples, seen
from lockstep.labs.lab0_why.parallelism import BATCHES, DATA, MODEL, ONE, WIDTHS, Ways
from lockstep.labs.lab0_why.step_animation import step_ms, waiting_ms
from lockstep.labs.lab0_why.step_parts import Steps
from lockstep.labs.shared.quiz import Question
from lockstep.predict.learning_curve import LEAST_POINTS


def questions(learning: Learning, ways: Ways, steps: Steps) -> list[Question]:
    """Return the five questions."""
    return [
        _halving(learning),
        _early(learning),
        _batch(ways),
        _memory(ways),
        _images(steps),
    ]


def _halving(found: Learning) -> Question:
    law = seen(found, len(found.sizes)).law
    times = 2.0 ** (-1.0 / law.b)
    wrong = _apart(times, (2.0, 4.0, times**2, times / 3, 1000.0))
    return Question(
        text=f"The law through all {len(found.sizes)} points has the exponent {law.b:.2f}. How "
        f"much more data halves the part of the error above the floor of {law.c:.3f}?",
        choices=(_times(times), *map(_times, wrong[:3])),
        why=f"2 to the power 1/{-law.b:.2f} is {_times(times)}. Doubling the data only reduces it "
        f"to {2**law.b:.0%} of what it was.",
    )


def _early(found: Learning) -> Question:
    points = max(LEAST_POINTS, len(found.sizes) // 2)
    size, error = found.sizes[-1], found.means[-1]
    needs = seen(found, points).needed(error)
    right = 2 if 0.9 <= needs.best / size <= 1.1 else int(needs.best > size)
    inside = needs.low <= size <= needs.high
    return Question(
        text=f"From the first {points} sizes, up to {found.sizes[points - 1]:,} samples, the best "
        f"law predicted an error of {error:.3f} at {samples(needs.best)} samples. In the "
        f"measurement, it took {size:,}. How good was the best law?",
        choices=(
            "It promised too much: more data was needed",
            "It was too cautious: less data was needed",
            "It was right within a tenth",
        ),
        right=right,
        why=f"It predicted {samples(needs.best)}, and {size:,} were needed. The interval, at least "
        f"{samples(needs.low)} and {most(needs.high)}, {'held' if inside else 'missed'} it: a few "
        "points tell little about the end of a curve. Plan with the high end.",
    )


def _batch(found: Ways) -> Question:
    width, (small, large) = WIDTHS[-1], (BATCHES[0], BATCHES[-1])
    sent = {
        way: [max(found.row(width, batch, way)["sent"]) for batch in (small, large)]
        for way in (DATA, MODEL)
    }
    return Question(
        text="You double the batch and keep the model. What happens to the bytes that are sent?",
        choices=(
            "Those of model parallelism double, those of data parallelism stay the same",
            "Those of data parallelism double, those of model parallelism stay the same",
            "Both double",
            "Both stay the same",
        ),
        why=f"Measured at width {width}: from batch {small} to {large:,}, gradients stayed at "
        f"{spoken(sent[DATA][0])}, and activations went from {spoken(sent[MODEL][0])} to "
        f"{spoken(sent[MODEL][1])}. There are as many gradients as parameters, but every sample "
        "has its own activations.",
    )


def _memory(found: Ways) -> Question:
    width, batch = WIDTHS[-1], BATCHES[0]
    one, data, model = (max(memory(found.row(width, batch, way))) for way in (ONE, DATA, MODEL))
    state = max(found.row(width, batch, DATA)["parameters"])
    part = max(found.row(width, batch, MODEL)["parameters"])
    return Question(
        text="A model's parameters, gradients and optimizer state take 100 GB; each of your GPUs "
        "has 80 GB. Which way can train it on two of them?",
        choices=(
            "Model parallelism: each GPU keeps a part of the model",
            "Data parallelism: each GPU keeps half of the batch",
            "Either: both use the memory of two GPUs",
            "Neither: the whole model must fit on each",
        ),
        why=f"Measured at width {width}, batch {batch}: one process used {spoken(one)}, a data "
        f"parallel one {spoken(data)}, a stage of a model parallel one {spoken(model)}. Data "
        f"parallelism shares out activations, but every process has all {spoken(state)} of "
        f"parameters; a stage has {spoken(part)}.",
    )


def _images(found: Steps) -> Question:
    # Use the numbers of the picture: the quiz must not contradict it.
    one, two = found.run(1), found.run(2)
    assert one is not None
    assert two is not None
    alone, both = step_ms(one["lanes"]), step_ms(two["lanes"])
    waited = max(waiting_ms(lane) for lane in two["lanes"])
    ratio = 2 * alone / both
    wrong = _apart(ratio, (ratio / 2, 2.0, 1.0, 2 / ratio, 4.0))
    return Question(
        text=f"In the picture a step takes {alone:.1f} ms on one replica, {both:.1f} ms on two; "
        f"each replica computes {found.local_batch} images. How many times as many images per "
        "second do two replicas process?",
        choices=tuple(f"{value:.2f} times" for value in (ratio, *wrong[:3])),
        why=f"Two replicas do 2 x {found.local_batch} images in {both:.1f} ms: 2 x {alone:.1f} / "
        f"{both:.1f} = {ratio:.2f}. A replica waited {waited:.1f} ms per step for the all-reduce "
        "and the other replica; the rest is lost because the replicas share the machine.",
    )


def _apart(right: float, others: Sequence[float]) -> list[float]:
    """Return the values that nobody would confuse with the right one or with each other."""
    kept: list[float] = []
    for value in others:
        if all(abs(value / known - 1) > 0.1 for known in (right, *kept)):
            kept.append(value)
    return kept


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 10 else f"{float(f'{ratio:.2g}'):,.0f} times"
