"""Check that in each epoch one rank trains on each training sample, exactly once."""

from __future__ import annotations

import torch

from lockstep.assess.evidence import Check, Evidence, Verdict, failed, passed


def judge(evidence: Evidence) -> Verdict:
    """Count how often the ranks train on each sample."""
    number, size = evidence.replicas, len(evidence.samples.train_labels)
    if evidence.watched.group != number:
        return failed(
            f"{number} processes were started, but {evidence.watched.group} trained: the others "
            "did not join the process group"
            if evidence.watched.group > 1
            else f"{number} processes were started, but they formed no process group: each trained "
            "alone. Call torch's init_process_group"
        )
    worst = 0
    for epoch in evidence.epochs:
        parts = evidence.watched.learned(epoch)
        rows = torch.cat(parts)
        strange = int((rows < 0).sum())
        if strange:
            return failed(
                f"in epoch {epoch} {strange} of {len(rows)} inputs are not among the given images: "
                "the task has no augmentation, so the model must get each image unchanged except "
                "for scale and shift"
            )
        if not len(rows):
            return failed(f"the program learned nothing in epoch {epoch}: no gradient came back")
        counts = torch.bincount(rows, minlength=size)[:size]
        missing, extra = int((counts == 0).sum()), int((counts - 1).clamp_min(0).sum())
        whole = [part.unique().numel() >= size for part in parts]
        if number > 1 and all(whole):
            return failed(
                f"each of the {number} ranks went over all {size} samples in epoch {epoch}: "
                f"the ranks do not share the work, and train on each sample {number} times. "
                "Give each rank its part with a DistributedSampler"
            )
        if missing >= number or extra >= number:
            return failed(
                f"in epoch {epoch} {missing} of {size} samples were left out and {extra} came "
                f"more than once. Fewer than {number} are allowed, to make the ranks' parts equal"
            )
        worst = max(worst, missing, extra)
    note = f"; {worst} too many or too few to make the parts equal" if worst else ""
    return passed(f"{size} samples over {number} ranks, each once{note}")


CHECK = Check(place=2, name="samples", title="Each sample once per epoch", judge=judge)
