"""Check that the weights come from this run, from scratch, on training data only."""

from __future__ import annotations

from lockstep.assess.evidence import Check, Evidence, Verdict, failed, passed

GUESSED = 0.4
"""An accuracy far above that of an untrained model, which guesses one of ten."""


def judge(evidence: Evidence) -> Verdict:
    """Look for each known way to cheat."""
    for look in (_test_set, _from_the_start, _of_this_run, _folder):
        problem = look(evidence)
        if problem:
            return failed(problem)
    return passed("it trained from scratch on training samples only, and saved its own weights")


CHECK = Check(place=10, name="honest", title="No cheating", judge=judge)


def _test_set(evidence: Evidence) -> str:
    size = len(evidence.samples.train_labels)
    for epoch in evidence.epochs:
        found = sum(int((part >= size).sum()) for part in evidence.watched.learned(epoch))
        if found:
            return (
                f"in epoch {epoch} it learned from {found} test samples: the accuracy of a model "
                "that was trained on the test set means nothing"
            )
    return ""


def _from_the_start(evidence: Evidence) -> str:
    untrained = evidence.untrained
    if untrained is None or untrained.right is None:
        return "the weights before the first step are not those of the given model"
    if untrained.accuracy > GUESSED:
        return (
            f"before its first step the model classified {untrained.accuracy:.4f} of the test "
            "set correctly: it was trained before"
        )
    return ""


def _of_this_run(evidence: Evidence) -> str:
    for rank, sums in enumerate(evidence.watched.sums):
        for (step, when), value in sums.items():
            if when == "before" and step and sums.get((step, "after")) != value:
                return (
                    f"between steps {step} and {step + 1} something other than the optimizer "
                    f"changed the weights of rank {rank}"
                )
    for epoch, recount in sorted(evidence.recounts.items()):
        end, writers = evidence.watched.ends.get(epoch), evidence.watched.writers.get(epoch)
        if recount.right is None or end is None or not writers:
            continue
        sums = evidence.watched.sums[writers[0]]
        if sums.get((end, "after")) != recount.sum:
            return f"epoch-{epoch}.pt does not hold the weights at the end of epoch {epoch}"
    return ""


def _folder(evidence: Evidence) -> str:
    if evidence.mended:
        return (
            f"its folder changed during the grading: {evidence.mended[0]}. If you changed it, "
            "grade again"
        )
    return ""
