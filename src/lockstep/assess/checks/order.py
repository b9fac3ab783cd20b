"""The samples come in another order in each epoch."""

from __future__ import annotations

from itertools import pairwise

import torch

from lockstep.assess.evidence import Evidence, Verdict, failed, passed, unjudged


def judge(evidence: Evidence) -> Verdict:
    """Compare each epoch with the one before, rank by rank."""
    epochs = [evidence.watched.learned(epoch) for epoch in evidence.epochs]
    if not epochs or not all(len(part) for epoch in epochs for part in epoch):
        return unjudged("not judged: some rank learned from nothing in some epoch")
    for number, (before, after) in enumerate(pairwise(epochs), 1):
        for rank, (a, b) in enumerate(zip(before, after, strict=True)):
            if torch.equal(a, b):
                return failed(
                    f"rank {rank} took its {len(a)} samples in the same order in epochs {number} "
                    f"and {number + 1}. A DistributedSampler must be told the epoch: set_epoch"
                )
    return passed(f"{len(epochs)} epochs, {len(epochs)} orders")
