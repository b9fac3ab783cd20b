"""Check that it accepts its arguments, ends within the limit, and leaves no process running."""

from __future__ import annotations

from lockstep.assess.evidence import Check, Evidence, Verdict, failed, passed
from lockstep.assess.supervise import MOST_OUTPUT, MOST_PROCESSES
from lockstep.console import duration

TAIL = 8


def judge(evidence: Evidence) -> Verdict:
    """Explain how the run ended."""
    result = evidence.result
    words = result.last_words.splitlines()[-TAIL:]
    if result.how == "limit":
        limit = duration(evidence.exam.seconds)
        done = len(result.appeared)
        return failed(
            f"the grader stopped it at the limit of {limit}, with {done} of "
            f"{evidence.exam.epochs} epochs done",
            *words,
        )
    if result.how == "hung":
        where = [f"a rank was at: {doing}" for doing, _ in result.stuck if doing]
        return failed("it hung: no rank did anything for a while. See where below", *where, *words)
    if result.how == "output":
        return failed(
            f"it printed more than {MOST_OUTPUT / 1e6:.0f} MB, so the grader stopped it. Print "
            "one line per epoch",
            *(line[:200] for line in words[-2:]),
        )
    if result.how == "processes":
        return failed(f"it started more than {MOST_PROCESSES} processes, so the grader stopped it")
    if result.how == "broken":
        return failed(f"the grader could not watch it to its end: {result.error}", *words)
    if result.how == "crashed":
        return _crashed(evidence, words)
    if result.left:
        return failed(
            f"it left {len(result.left)} process(es) running, which the grader stopped: "
            f"{result.left[0]}"
        )
    missing = [f"epoch-{epoch}.pt" for epoch in evidence.epochs if epoch not in result.appeared]
    if missing:
        return failed(
            f"it ended without an error, but {len(missing)} of {evidence.exam.epochs} files are "
            f"not in the folder that --out names; the first is {missing[0]}",
            *words,
        )
    return passed(f"{evidence.exam.epochs} epochs in {duration(max(result.appeared.values()))}")


CHECK = Check(place=1, name="start", title="It starts and ends", judge=judge)


def _crashed(evidence: Evidence, words: list[str]) -> Verdict:
    codes = [code for code in evidence.result.codes if code]
    said = [line.strip() for line in words if line.strip()]
    last = said[-1][:300] if said else ""
    if 2 in codes and "error:" in last and "argument" in " ".join(said):
        return failed(
            "it does not accept the arguments --data, --epochs, --seed, --out: "
            f"{last.partition('error: ')[2]}"
        )
    if codes and codes[0] is not None and codes[0] < 0:
        return failed(f"signal {-codes[0]} ended a rank", *words)
    return failed(f"it failed with exit code {codes[0] if codes else '?'}: {last}", *words)
