"""Weights come from this training, on training data, from the start; the folder is left alone."""

from __future__ import annotations

from lockstep.assess.evidence import Evidence, Verdict, failed, passed

GUESSED = 0.4
"""An untrained model guesses one of ten, and is far below."""


def judge(evidence: Evidence) -> Verdict:
    """What would be cheating."""
    for look in (_test_set, _from_the_start, _of_this_run, _folder):
        problem = look(evidence)
        if problem:
            return failed(problem)
    return passed("trained from scratch on training samples alone; the saved weights are its own")


def _test_set(evidence: Evidence) -> str:
    size = len(evidence.samples.train_labels)
    for epoch in evidence.epochs:
        found = sum(int((part >= size).sum()) for part in evidence.watched.learned(epoch))
        if found:
            return (
                f"in epoch {epoch} it learned from {found} samples of the test set: trained on the "
                "test set, an accuracy says nothing"
            )
    return ""


def _from_the_start(evidence: Evidence) -> str:
    untrained = evidence.untrained
    if untrained is None or untrained.right is None:
        return "the weights before the first step are not those of the given model"
    if untrained.accuracy > GUESSED:
        return (
            f"before its first step the model was right on {untrained.accuracy:.4f} of the test "
            "set: it was trained before"
        )
    return ""


def _of_this_run(evidence: Evidence) -> str:
    for rank, sums in enumerate(evidence.watched.sums):
        for (step, when), value in sums.items():
            if when == "before" and step and sums.get((step, "after")) != value:
                return (
                    f"between steps {step} and {step + 1} the weights of rank {rank} were changed: "
                    "by something else than the optimizer"
                )
    for epoch, recount in sorted(evidence.recounts.items()):
        end, writers = evidence.watched.ends.get(epoch), evidence.watched.writers.get(epoch)
        if recount.right is None or end is None or not writers:
            continue
        sums = evidence.watched.sums[writers[0]]
        if sums.get((end, "after")) != recount.sum:
            return f"the weights in epoch-{epoch}.pt are not those that epoch {epoch} ended with"
    return ""


def _folder(evidence: Evidence) -> str:
    if evidence.mended:
        return (
            f"its own folder was changed while it was graded: {evidence.mended[0]}. If that was "
            "you, grade again"
        )
    return ""
