"""The quiz of lab 2, about the recordings and measurements."""

from __future__ import annotations

from statistics import median

from lockstep.labs.lab2_ddp import bucket_pictures, validation
from lockstep.labs.lab2_ddp.buckets import BATCH, Recorded, named
from lockstep.labs.lab2_ddp.converter_comparison import BATCHES, CONVERTED, ONE, OWN, Runs
from lockstep.labs.lab2_ddp.validation import BATCHES_MEAN, EXACT, PADDED, RANKS_MEAN, Judged
from lockstep.labs.shared.quiz import Question, distinct

RANKS = 2
TEST_BATCH = 100
LITTLE = 0.005
"""Fewer milliseconds count as none."""


def questions(recorded: Recorded, judged: Judged, runs: Runs) -> list[Question]:
    """Return the five questions."""
    return [
        _sent(recorded),
        _first_bucket(recorded),
        _most_beside(recorded),
        _mean_of_means(judged),
        _besides_work(runs),
    ]


def _asked(text: str, right: str, wrong: list[str], why: str) -> Question:
    return Question(text=text, choices=distinct(right, wrong), why=why)


def _sent(found: Recorded) -> Question:
    sent = 2 * (RANKS - 1) * found.bytes // RANKS
    count = found.bytes // 4
    return _asked(
        f"The recorded network has {count:,} parameters, and each of the two ranks computed "
        f"{BATCH} samples per step. How much did each of them send per step?",
        f"{_mb(sent)}, as much as one gradient",
        [
            f"{_mb(BATCH * found.bytes)}, a gradient for each sample",
            f"{_mb(2 * sent)}, to the other rank and back",
            f"{_mb(sent / RANKS)}, its half of the gradient",
        ],
        f"A gradient has one number per parameter, whatever the batch: {count:,} "
        f"times 4 bytes are {_mb(found.bytes)}. In an all-reduce each of W ranks sends 2 (W - 1) / "
        f"W times that. With two ranks it sends half a gradient and half a sum: {_mb(sent)}.",
    )


def _first_bucket(found: Recorded) -> Question:
    cap = found.caps[0]
    notes = found.notes(cap, len(found.runs[0]) - 1)[0]
    first = notes["buckets"][0]
    layers = [layer["name"] for layer in notes["layers"]]
    inside = bucket_pictures.layers_of(first["parameters"])
    model = bucket_pictures.layers_of([name for name, _ in found.parameters])
    return _asked(
        f"With buckets of {named(cap)}, which layers' gradients were reduced first in the last "
        "recorded step?",
        ", ".join(inside),
        [
            ", ".join(layers[-len(inside) :][::-1]),
            ", ".join(model[1 : 1 + len(inside)]),
            f"all at once: {', '.join(model)}" if len(inside) < len(model) else layers[0],
        ],
        f"The backward pass goes from output to input, so {inside[0]} had its gradients first, and "
        f"bucket 0 ({_mb(first['bytes'])}) started after {first['start']:.1f} of "
        f"{notes['end']:.1f} ms. The order in the source ({', '.join(model[:3])}, ...) does not "
        "matter once DDP has seen a step.",
    )


def _most_beside(found: Recorded) -> Question:
    shares = {}
    for cap, steps in zip(found.caps, found.runs, strict=True):
        later = [
            notes for by_rank in steps[bucket_pictures.SETTLED :] or steps for notes in by_rank
        ]
        shares[named(cap)] = round(median(bucket_pictures.overlap(notes)[0] for notes in later), 2)
    best = max(shares, key=lambda name: shares[name])
    less = [name for name in sorted(shares, key=shares.__getitem__) if shares[name] < shares[best]]
    told = ", ".join(f"{name}: {share:.0%}" for name, share in shares.items())
    return _asked(
        "With which bucket size did the backward pass hide the largest share of the all-reduces' "
        "time?",
        best,
        less or ["all sizes: everything was hidden"],
        f"Measured here: {told}. A bucket starts when its last gradient is ready. One large bucket "
        "starts when the pass is over, and nothing is left to hide behind; small ones start early, "
        "but each has a fixed cost.",
    )


def _mean_of_means(found: Judged) -> Question:
    right, count = sum(found.right), len(found.right)
    names = (RANKS_MEAN, EXACT, PADDED, BATCHES_MEAN)
    shown: dict[str, str] = {}
    # Take two ranks, unless two ways then print the same number.
    for ranks in (2, 3, 5, 7):
        values = validation.ways(found.right, ranks, TEST_BATCH)
        shown = {name: f"{values[name]:.5f}" for name in names}
        sizes = sorted({len(found.right[r::ranks]) for r in range(ranks)}, reverse=True)
        if len(set(shown.values())) == len(names):
            break
    near = [f"{(right + change) / count:.5f}" for change in (-1, -2)]
    return _asked(
        f"A network gets {right} of {count} test images right. Each of {ranks} ranks has "
        f"{' or '.join(map(str, sizes))} of them. What would a program print that averages the "
        "accuracies of the ranks?",
        shown[RANKS_MEAN],
        [*(shown[name] for name in names[1:]), *near],
        f"The mean of the ranks' means is {shown[RANKS_MEAN]}: an image in a smaller part weighs "
        f"more. The accuracy is {right}/{count} = {shown[EXACT]}. A mean over batches of "
        f"{TEST_BATCH} would be {shown[BATCHES_MEAN]}, because a short last batch weighs as much "
        f"as a full one; a sampler that repeats samples gives {shown[PADDED]}.",
    )


def _besides_work(runs: Runs) -> Question:
    batch, larger = BATCHES
    name = OWN if runs.of(OWN, batch).rate else CONVERTED
    one, two = runs.of(ONE, batch).rate, runs.of(name, batch).rate
    assert one, "the program for one GPU ran"
    assert two, "the converter's program ran"
    alone, both = 1e3 * batch / one, 1e3 * batch / two
    extra = both - alone / 2
    none = "none: two processes took no more than half the time of one"
    numbers = [f"{value:.2f} ms" for value in (both, alone / 2, alone) if value >= LITTLE]
    who = "your program" if name == OWN else "the converter's program"
    ratio = runs.ratio(OWN, larger)
    at_larger = "" if ratio is None else f" At batch {larger} it was {ratio:.2f} times."
    return _asked(
        f"One process needed {alone:.2f} ms for a step of {batch} images, and two processes "
        f"({who}) {both:.2f} ms. How much of that was not spent on computing their halves?",
        f"{extra:.2f} ms" if extra >= LITTLE else none,
        [*numbers, none],
        f"Half of {alone:.2f} ms is {alone / 2:.2f} ms; the rest, {max(extra, 0.0):.2f} ms, goes "
        "into the exchange, its start, waiting for each other, and shared cores. Two processes "
        f"were {two / one:.2f} times as fast as one.{at_larger} The fixed costs of a step weigh "
        "less in a larger batch.",
    )


def _mb(size: float) -> str:
    return f"{size / 1e6:.1f} MB"
