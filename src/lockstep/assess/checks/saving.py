"""The weights of an epoch are written by one rank, as the plain model's, where they belong."""

from __future__ import annotations

from lockstep.assess.evidence import Evidence, Verdict, failed, passed


def judge(evidence: Evidence) -> Verdict:
    """Who wrote what."""
    watched = evidence.watched
    for epoch, ranks in sorted(watched.writers.items()):
        if len(ranks) > 1:
            return failed(
                f"epoch-{epoch}.pt is written by ranks {', '.join(map(str, ranks))}: they "
                "overwrite each other, and who reads it may find half a file. One rank saves"
            )
    problem = next((r.problem for _, r in sorted(evidence.recounts.items()) if r.problem), "")
    if problem:
        return failed(problem)
    if watched.outside:
        return failed(
            f"it writes {watched.outside[0]}, which is neither in the folder that --out names nor "
            "in the one where it runs"
        )
    ranks = sorted({rank for one in watched.writers.values() for rank in one})
    if not ranks:
        return failed("the files were not written by any rank that was watched")
    return passed(f"rank {', '.join(map(str, ranks))} saves, and build_model() loads it")
