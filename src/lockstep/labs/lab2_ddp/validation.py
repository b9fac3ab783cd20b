"""Compare ways to compute an accuracy on several ranks: one right and four wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.labs.lab2_ddp.files import TEST
from lockstep.labs.shared.apart import Report
from lockstep.report.page import BLUE, GREEN, GREY, ORANGE, RED

EPOCHS, BATCH, RATE = 3, 64, 0.1
EXACT = "sum of counts"
RANKS_MEAN, BATCHES_MEAN = "mean of ranks", "mean of batches"
PADDED, DROPPED = "padded", "last batch dropped"
COLOURS = {EXACT: GREEN, RANKS_MEAN: BLUE, BATCHES_MEAN: GREY, PADDED: ORANGE, DROPPED: RED}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Whether a network gets each test image right: 1 or 0."""

    right: list[int]


def measure(report: Report) -> Judged:
    """Train a small network for a moment, and evaluate every test image."""
    import torch
    from torch import nn

    from lockstep.labs.shared.digits import digits

    report(0.1, "training a network")
    samples = digits("cpu")
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    try:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        for _ in range(EPOCHS):
            for own in torch.randperm(len(samples)).split(BATCH):
                scores = net(samples.inputs[own])
                loss = nn.functional.cross_entropy(scores, samples.targets[own])
                # Step by hand: torch's first optimizer imports its compiler, which takes a second.
                gradients = torch.autograd.grad(loss, list(net.parameters()))
                with torch.no_grad():
                    for p, gradient in zip(net.parameters(), gradients, strict=True):
                        p.sub_(RATE * gradient)
        with torch.no_grad():
            right = net(samples.test_inputs).argmax(1) == samples.test_targets
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state)
    return Judged(right=right[:TEST].int().tolist())


def ways(right: Sequence[int], ranks: int, batch: int) -> dict[str, float]:
    """Return the accuracy by each way to combine the ranks' results.

    >>> ways([1, 1, 0], ranks=2, batch=1)[EXACT] == 2 / 3
    True
    >>> ways([1, 1, 0], ranks=2, batch=1)[RANKS_MEAN]
    0.75
    """
    known = np.asarray(right)
    parts = [known[rank::ranks] for rank in range(ranks)]
    # DistributedSampler repeats the first samples until all ranks have equally many.
    padded = np.concatenate([known, known[: -len(known) % ranks]])
    kept = [part[: len(part) // batch * batch] for part in parts]
    dropped = np.concatenate(kept)
    means = [[b.mean() for b in np.split(p, range(batch, len(p), batch))] for p in parts]
    return {
        EXACT: float(known.mean()),
        RANKS_MEAN: float(np.mean([part.mean() for part in parts])),
        BATCHES_MEAN: float(np.mean([np.mean(one) for one in means])),
        PADDED: float(padded.mean()),
        DROPPED: float(dropped.mean()) if len(dropped) else float("nan"),
    }


def figure(found: Judged, ranks: int, batch: int) -> dict[str, Any]:
    """Draw how far each way is from the exact accuracy."""
    values = ways(found.right, ranks, batch)
    exact = values[EXACT]
    names = [name for name in values if values[name] == values[name]]
    off = [round(100 * (values[name] - exact), 4) for name in names]
    far = max(0.1, 1.9 * max(map(abs, off)))
    data = {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "x": off,
        "text": [f"{values[name]:.4%}" for name in names],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": [COLOURS[name] for name in names]},
        "hovertemplate": "%{y}: %{text}, off by %{x:.3f} points<extra></extra>",
    }
    sizes = sorted({len(found.right[rank::ranks]) for rank in range(ranks)}, reverse=True)
    dropped = sum(len(found.right[rank::ranks]) % batch for rank in range(ranks))
    note = (
        f"{len(found.right)} test images on {ranks} ranks: "
        f"{' or '.join(map(str, sizes))} each. The sampler would repeat "
        f"{-len(found.right) % ranks}, drop_last would leave out {dropped}."
    )
    layout = {
        "showlegend": False,
        "xaxis": {"title": {"text": "percentage points off"}} | {"range": [-far, far]},
        "yaxis": {"title": {"text": "accuracy by", "standoff": 8}, "autorange": "reversed"},
    }
    return {"data": [data], "layout": layout, "note": note}
