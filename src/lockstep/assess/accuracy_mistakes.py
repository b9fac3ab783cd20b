"""Known mistakes in computing an accuracy, to find the one behind the printed numbers."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

import torch
from torch import Tensor

Batches = list[list[Tensor]]
"""The numbers of test samples, from 0, by rank and batch."""


def candidates(right: Tensor, batches: Batches) -> Iterator[tuple[str, float]]:
    """Yield a description of each mistake and its accuracy, the likeliest mistake first."""
    ranks = [torch.cat(parts) for parts in batches if parts]
    if not ranks:
        return
    rows = torch.cat(ranks)
    hits = int(right[rows].sum())
    copies = len(rows) - len(rows.unique())
    missing = len(right) - len(rows.unique())
    if copies:
        again = f"{copies} sample(s) twice, which were repeated to make the ranks' parts equal"
        yield f"it counts {again}", hits / len(rows)
        yield f"it counts {again}, and divides by {len(right)}", hits / len(right)
    if missing:
        yield f"it leaves {missing} of {len(right)} samples out", hits / len(rows)
    means = [[_mean(right, part) for part in parts] for parts in batches if parts]
    yield "it is the mean of the ranks' accuracies", fmean(_mean(right, r) for r in ranks)
    yield (
        "it is a mean over batches, as if the last one were as large as the others",
        fmean(fmean(one) for one in means),
    )
    yield (
        "it is a mean over all batches, as if the last were as large as the others",
        fmean(mean for one in means for mean in one),
    )
    for number, part in enumerate(ranks):
        yield f"it is the accuracy on rank {number}'s part alone", _mean(right, part)
        mine = float(right[part].sum()) / len(right)
        yield f"it counts rank {number}'s part alone and divides by all", mine
        yield f"it is a mean over rank {number}'s batches", fmean(means[number])


def explained(printed: list[str], rights: list[Tensor], batches: list[Batches]) -> str | None:
    """Return the first mistake that gives all printed numbers, epoch by epoch."""
    ways: list[dict[str, float]] = [
        dict(candidates(right, parts)) for right, parts in zip(rights, batches, strict=True)
    ]
    for name in ways[0] if ways else ():
        if all(
            name in way and f"{way[name]:.4f}" == text
            for way, text in zip(ways, printed, strict=True)
        ):
            return name
    return None


def _mean(right: Tensor, rows: Tensor) -> float:
    return float(right[rows].float().mean())
