"""Check that one rank saves the plain model's weights, in the folder that --out names."""

from __future__ import annotations

from lockstep.assess.evidence import Check, Evidence, Verdict, failed, passed


def judge(evidence: Evidence) -> Verdict:
    """Compare the files that each rank wrote."""
    watched = evidence.watched
    for epoch, ranks in sorted(watched.writers.items()):
        if len(ranks) > 1:
            return failed(
                f"ranks {', '.join(map(str, ranks))} write epoch-{epoch}.pt: they overwrite each "
                "other, and a reader may find half a file. Let only one rank save"
            )
    problem = next((r.problem for _, r in sorted(evidence.recounts.items()) if r.problem), "")
    if problem:
        return failed(problem)
    if watched.outside:
        return failed(
            f"it writes {watched.outside[0]}, which is neither in the folder that --out names nor "
            "in the folder in which it runs"
        )
    ranks = sorted({rank for one in watched.writers.values() for rank in one})
    if not ranks:
        return failed("no rank that the grader watched wrote the files")
    return passed(f"rank {', '.join(map(str, ranks))} saves, and build_model() loads the weights")


CHECK = Check(place=7, name="saving", title="One writer, plain weights", judge=judge)
