"""Check that the samples come in a different order in each epoch."""

from __future__ import annotations

from itertools import pairwise

import torch

from lockstep.assess.evidence import Check, Evidence, Verdict, failed, passed, unjudged


def judge(evidence: Evidence) -> Verdict:
    """Compare each epoch with the previous one, rank by rank."""
    epochs = [evidence.watched.learned(epoch) for epoch in evidence.epochs]
    if not epochs or not all(len(part) for epoch in epochs for part in epoch):
        return unjudged("not judged: in some epoch a rank trained on no samples")
    for number, (before, after) in enumerate(pairwise(epochs), 1):
        for rank, (a, b) in enumerate(zip(before, after, strict=True)):
            if torch.equal(a, b):
                return failed(
                    f"rank {rank} took its {len(a)} samples in the same order in epochs {number} "
                    f"and {number + 1}. Call the DistributedSampler's set_epoch(epoch)"
                )
    return passed(f"{len(epochs)} epochs, {len(epochs)} different orders")


CHECK = Check(place=3, name="order", title="A new order in each epoch", judge=judge)
