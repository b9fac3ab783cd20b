"""Check that the printed accuracy is that of the saved weights, to the last sample."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

import torch
from torch import Tensor

from lockstep.assess.evidence import Check, Evidence, Verdict, failed, passed, unjudged

Batches = list[list[Tensor]]
"""The numbers of test samples, from 0, by rank and batch."""


def judge(evidence: Evidence) -> Verdict:
    """Compare each printed accuracy with the grader's count."""
    numbers: dict[int, str] = {}
    for epoch in evidence.epochs:
        said = evidence.printed(epoch)
        if len(said) != 1:
            return _not_once(evidence, epoch, said)
        numbers[epoch] = said[0][1]
    counted = {e: evidence.recounts[e] for e in evidence.epochs if e in evidence.recounts}
    lacking = [r.problem for r in counted.values() if r.right is None]
    if lacking or len(counted) < len(numbers):
        return unjudged(f"not judged: {(lacking or ['weights are missing'])[0]}")
    wrong = [e for e, text in numbers.items() if not counted[e].allows(text)]
    if not wrong:
        last = counted[evidence.exam.epochs]
        return passed(
            f"{numbers[evidence.exam.epochs]} is {last.count} of "
            f"{len(evidence.samples.test_labels)} by the grader's count, and every epoch agrees"
        )
    first = wrong[0]
    return failed(
        f"epoch {first} printed {numbers[first]}, but its saved weights give "
        f"{counted[first].count} of {len(evidence.samples.test_labels)}, "
        f"{counted[first].accuracy:.4f}: {_why(evidence, numbers, first)}"
    )


CHECK = Check(place=6, name="validation", title="Exact validation", judge=judge)


def _not_once(evidence: Evidence, epoch: int, said: list[tuple[int, str]]) -> Verdict:
    if said:
        ranks = sorted({rank for rank, _ in said})
        who = f"by ranks {', '.join(map(str, ranks))}" if len(ranks) > 1 else f"by rank {ranks[0]}"
        return failed(
            f"the accuracy of epoch {epoch} is printed {len(said)} times, {who}: let one rank print"
        )
    near = [line for lines in evidence.result.lines for line in lines if "acc" in line.lower()]
    return failed(
        f"no line reads 'epoch {epoch} accuracy 0.1234', with four digits", *(near[:1] or ())
    )


def _why(evidence: Evidence, numbers: dict[int, str], first: int) -> str:
    """Name the mistake that gives the printed numbers."""
    size = len(evidence.samples.train_labels)
    looked = [
        [[part[part >= size] - size for part in parts if bool((part >= size).any())] for parts in e]
        for e in map(evidence.watched.evaluated, evidence.epochs)
    ]
    rights = [r.right for e in evidence.epochs if (r := evidence.recounts[e]).right is not None]
    found = explained(list(numbers.values()), rights, looked)
    if found is not None:
        return found
    if len(set(numbers.values())) == 1 and len(numbers) > 1:
        return "it prints the same number in every epoch, whatever the weights are"
    if not any(parts for epoch in looked for parts in epoch):
        return "no test sample went through the model"
    end = evidence.watched.ends.get(first, 0)
    if len({sums.get((end, "after")) for sums in evidence.watched.sums}) > 1:
        return "the replicas have diverged by then, and each counts with different weights"
    return "the number follows neither from the weights nor from a known mistake"


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
