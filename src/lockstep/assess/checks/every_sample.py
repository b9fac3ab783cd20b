"""Every training sample is learned from once in each epoch, by one of the ranks."""

from __future__ import annotations

import torch

from lockstep.assess.evidence import Evidence, Verdict, failed, passed


def judge(evidence: Evidence) -> Verdict:
    """Count them."""
    number, size = evidence.replicas, len(evidence.samples.train_labels)
    if evidence.watched.group != number:
        return failed(
            f"{number} processes were started, and {evidence.watched.group} trained: the others "
            "did not join its process group"
            if evidence.watched.group > 1
            else f"{number} processes were started, and no group of them was made: each trained "
            "alone. Call torch's init_process_group"
        )
    worst = 0
    for epoch in evidence.epochs:
        parts = evidence.watched.learned(epoch)
        rows = torch.cat(parts)
        strange = int((rows < 0).sum())
        if strange:
            return failed(
                f"in epoch {epoch} {strange} of {len(rows)} inputs are none of the given images: "
                "the task has no augmentation, so each must be given to the model as it is, but "
                "for scale and shift"
            )
        if not len(rows):
            return failed(f"nothing was learned in epoch {epoch}: no gradient came back")
        counts = torch.bincount(rows, minlength=size)[:size]
        missing, extra = int((counts == 0).sum()), int((counts - 1).clamp_min(0).sum())
        whole = [part.unique().numel() >= size for part in parts]
        if number > 1 and all(whole):
            return failed(
                f"each of the {number} ranks went over all {size} samples in epoch {epoch}: "
                "nothing is divided, and each sample is learned from "
                f"{number} times. Give each rank its part, with a DistributedSampler"
            )
        if missing >= number or extra >= number:
            return failed(
                f"in epoch {epoch} {missing} of {size} samples were left out and {extra} came "
                f"more than once. Only fewer than {number}, which make the ranks' parts equal, "
                "are allowed"
            )
        worst = max(worst, missing, extra)
    note = f"; {worst} over or under to make the parts equal" if worst else ""
    return passed(f"{size} samples over {number} ranks, each once{note}")
