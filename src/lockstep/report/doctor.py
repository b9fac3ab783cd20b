"""Write report.html of `lockstep doctor --run`: the findings, and what the ranks did.

The page shows the document of --json. A run may end anywhere, so any fact may be missing. The page
has no figure: it needs no Plotly and is small enough to send by mail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from lockstep.console import duration
from lockstep.report import page

MOST_RANKS = 8
"""Most ranks whose numbers are listed one by one."""
MOST_ROWS = 40
"""Most rows of a table; a script may write a thousand files."""
Document = Mapping[str, Any]
_TONES = {"error": ("bad", "error"), "warning": ("warn", "possible")}
_HOW_TO_SEE = {
    "training from a DataLoader": "The doctor follows samples only through torch's DataLoader. If "
    "the script has one, let it reach its first step: --steps 0 sets no limit.",
    "a second epoch": "Let each epoch end early with --batches 5, or run longer with --steps 0.",
    "a whole evaluation": "If the script has one, run longer with --steps 0, and without "
    "--batches, which cuts it.",
    "a checkpoint": "Run longer with --steps 0, or give the script an argument after -- that makes "
    "it save sooner.",
    "a resume": 'Give the arguments that make the script resume: --resume "ARGUMENTS".',
}


def write_doctor(path: Path, document: Document, name: str) -> Path:
    """Write the document of `lockstep doctor --run --json` as a page; return its path."""
    run = document.get("run") or {}
    findings = document.get("findings") or []
    return page.write_page(
        path,
        f"{name}: lockstep doctor",
        page.banner(*_verdict(run, findings)),
        *map(page.paragraph, document.get("errors") or []),
        *_ending(run),
        *_findings(findings),
        *_shown(document, run),
        *_passes(run.get("passes") or []),
        *_replicas(run),
        *_files(run.get("files") or []),
        *_not_seen(run),
    )


def _verdict(run: Document, findings: Sequence[Document]) -> tuple[str, str, str]:
    """Return a word, a sentence and a tone for the banner."""
    errors = sum(finding.get("severity") == "error" for finding in findings)
    possible = len(findings) - errors
    counts = [f"{errors} error{'s' * (errors != 1)}"] * bool(errors)
    counts += [f"{possible} possible"] * bool(possible)
    found = ", ".join(counts) or "Nothing found"
    beside = f" The doctor found: {found}." if findings else ""
    ended, seconds = run.get("ended"), duration(run.get("seconds") or 0.0)
    if ended == "hung":
        text = (
            f"No rank made progress any more, so the doctor ended the run after {seconds}.{beside}"
        )
        return "The script hung", text, "bad"
    if ended == "crashed":
        early = ", before its ranks met. If arguments are missing, give them after --"
        before = "" if _several(run) else early
        return "The script failed", f"It failed after {seconds}{before}.{beside}", "bad"
    if run and not _several(run):
        text = (
            "The script ended without a process group of several ranks, so there was nothing to "
            "watch. If it starts its ranks by itself, add --launch python; if it takes their "
            f"number as an argument, give it after --.{beside}"
        )
        return "The script did not train on several ranks", text, "warn"
    watched = f"{run.get('ranks')} ranks ran {_count(run.get('steps', 0), 'step')} in {seconds}. "
    watched = watched if run else ""
    if errors:
        return found, f"{watched}Errors are certain; check what is only possible.", "bad"
    if possible:
        return found, f"{watched}Nothing is certainly wrong; check what is possible.", "warn"
    return found, f"{watched}No rule found a bug, neither in the source nor in the run.", "good"


def _several(run: Document) -> bool:
    return int(run.get("ranks") or 0) > 1


def _findings(findings: Sequence[Document]) -> Iterator[str]:
    if findings:
        worst_first = sorted(findings, key=lambda finding: finding.get("severity") != "error")
        yield page.section("What to fix", *map(_finding, worst_first))


def _finding(finding: Document) -> str:
    tone, word = _TONES.get(str(finding.get("severity")), ("plain", "note"))
    seen = "while running" if finding.get("seen") == "running" else "in the source"
    rows = [
        (f"seen {seen}", str(finding.get("message", "")).removeprefix("possible: ")),
        ("what to do", str(finding.get("advice", ""))),
    ]
    fix = finding.get("fix")
    if fix:
        flag = "--fix" if fix.get("safe") else "--unsafe-fixes"
        rows.append(("fix it with", f"lockstep doctor {flag}: {fix.get('title', '')}"))
    title = f"{finding.get('code', '')} {finding.get('rule', '')}"
    place = f"{finding.get('path', '')}:{finding.get('line', '')}"
    return page.item(tone, word, title, place, rows)


def _ending(run: Document) -> Iterator[str]:
    """Show how a run failed or hung."""
    words = run.get("last_words") or []
    if words:
        yield page.section(
            "Last output",
            page.verbatim(words, _is_error),
            page.paragraph("The .log files beside this page hold the whole output of the ranks."),
        )
    stuck = run.get("stuck") or []
    if not stuck and run.get("ended") != "hung":
        return
    # Many ranks wait in the same place: show it once.
    together: dict[tuple[str, str, tuple[str, ...]], list[Any]] = {}
    for one in stuck:
        doing, collective = one.get("doing") or "", one.get("last_collective") or ""
        where = (doing, collective, tuple(one.get("stack") or ()))
        together.setdefault(where, []).append(one.get("rank"))
    parts = [_stuck(ranks, *where) for where, ranks in together.items()]
    known = {one.get("rank") for one in stuck}
    gone = [rank for rank in range(int(run.get("ranks") or 0)) if rank not in known]
    if gone:
        text = f"{_ranks(gone).capitalize()} had already exited."
        parts.append(page.paragraph(text))
    yield page.section("Where each rank was", *parts)


def _is_error(line: str) -> bool:
    """Return whether a line is the last of a traceback: the name of an error and a colon."""
    name = line.rpartition("]: ")[2] if line.startswith("[rank") else line
    first = name.partition(":")[0]
    return first.endswith(("Error", "Exception", "error")) and not first.startswith(" ")


def _stuck(ranks: list[Any], doing: str, collective: str, stack: tuple[str, ...]) -> str:
    numbers = [rank for rank in ranks if rank is not None]
    who = [_ranks(numbers)] * bool(numbers)
    if len(numbers) < len(ranks):
        who.append(_count(len(ranks) - len(numbers), "process", "processes") + " without a rank")
    rows = [("was", doing)] * bool(doing) + [("last collective", collective)] * bool(collective)
    rows += [("call stack", "innermost first; lines near the script are bold")] * bool(stack)
    # Relative paths are near the script: its author can change these lines.
    parts = [page.verbatim(stack, lambda frame: not Path(frame).is_absolute())] if stack else []
    return page.item("bad", "", " and ".join(who), "", rows, *parts)


def _shown(document: Document, run: Document) -> Iterator[str]:
    if not _several(run):
        return
    notes = []
    if run.get("fake_cuda"):
        notes.append(f"The CPU stood in for {', '.join(map(str, run['fake_cuda']))}.")
    if run.get("fake_data"):
        notes.append(f"Missing here, so replaced: {'; '.join(map(str, run['fake_data']))}.")
    if document.get("frameworks"):
        notes.append(f"The script uses {', '.join(map(str, document['frameworks']))}.")
    yield page.section("What the run showed", page.cards(_cards(run)), *map(page.paragraph, notes))


def _cards(run: Document) -> Iterator[page.Card]:
    yield "ranks", str(run["ranks"]), f"over {run['backend']}" if run.get("backend") else ""
    yield "steps", page.number(run.get("steps", 0)), f"in {duration(run.get('seconds') or 0.0)}"
    if not run.get("steps"):
        return
    mine = f"{_each(run.get('per_rank') or [])} samples"
    batches = run.get("batches_per_step", 1)
    if batches != 1:
        mine += f", {_count(batches, 'batch', 'batches')} each"
    yield "effective global batch", page.number(run.get("global_batch")), mine
    reductions = run.get("reductions_per_step")
    yield "reductions per step", page.number(reductions), "gradient exchanges by DDP"
    waiting = run.get("waiting")
    share = f"{waiting:.0%}" if page.is_number(waiting) else "-"
    yield "waiting for data", share, "of the time between steps"
    rates = [rank for rank in run.get("rates") or [] if all(rank)]
    if rates:
        (first, *others), last = rates[0][0], rates[0][1][0]
        same = all(rank == rates[0] for rank in rates)
        note = "the same on all ranks" if same else "differs between ranks; this is rank 0"
        if others:
            note += f"; the first of {len(others) + 1} parameter groups"
        yield "learning rate", f"{first:g}" if first == last else f"{first:g} → {last:g}", note


def _passes(passes: Sequence[Document]) -> Iterator[str]:
    if not passes:
        return
    loaders: dict[tuple[str, bool], list[Document]] = {}
    for one in passes:
        loaders.setdefault((str(one.get("loader", "")), bool(one.get("trains"))), []).append(one)
    counts = ("samples per rank", "distinct", "on all ranks", "repeated", "never taken")
    columns = ("pass", *counts, "set_epoch", "order", "finished")
    parts = []
    for (place, trains), mine in loaders.items():
        kind = "Training" if trains else "Evaluation"
        size = mine[0].get("data_set")
        of = f": {_count(size, 'sample')}" if page.is_number(size) else ""
        parts.append(page.paragraph(f"{kind}, from the loader at {place}{of}."))
        parts.append(page.table(columns, map(_pass, mine[:MOST_ROWS])))
        if len(mine) > MOST_ROWS:
            parts.append(page.paragraph(f"And {len(mine) - MOST_ROWS} more passes."))
    note = (
        "Distinct: different samples over all ranks. On all ranks: samples that every rank took; "
        "without a sampler these are all samples. Repeated: samples taken once more than needed; a "
        "sampler repeats some to give all ranks the same number. set_epoch: the epoch that the "
        "script passed; if it stays the same, so does the order."
    )
    yield page.section("Which samples the ranks took", *parts, page.paragraph(note))


def _pass(one: Document) -> list[str]:
    counts = [page.number(one.get(n)) for n in ("distinct", "shared", "twice", "missing", "epoch")]
    samples = _each(one.get("samples") or [])
    # An evaluation needs no new order.
    order = str(one.get("order") or "-") if one.get("trains") else "-"
    finished = "yes" if one.get("complete") else "no"
    return [page.number(one.get("pass")), samples, *counts, order, finished]


def _replicas(run: Document) -> Iterator[str]:
    """Show whether the ranks hold one model and take the step that one process would."""
    drift, oracle = run.get("drift") or {}, run.get("oracle")
    parts = []
    if drift.get("looked"):
        step = drift.get("parameters_differ_after_step")
        looked = f"in the {_count(drift['looked'], 'step')} looked at"
        same = f"equal to the bit on all ranks, {looked}"
        apart = f"differ between ranks from step {step} on: the ranks train different models"
        buffers = "equal on all ranks"
        if drift.get("buffers_differ"):
            buffers = (
                "differ between ranks, as running statistics of batch norm do without "
                "SyncBatchNorm; a save or an evaluation uses those of one rank"
            )
        rows = [("parameters", apart if step else same), ("buffers", buffers)]
        parts.append(page.table((), rows))
    if oracle:
        parts += _oracle(oracle, run.get("ranks"))
    if parts:
        yield page.section("Do the ranks train one model?", *parts)


def _oracle(oracle: Document, ranks: Any) -> Iterator[str]:
    verdict = oracle.get("verdict")
    how = (
        f"The gradient oracle: one process repeated the first step of the {ranks} ranks, from the "
        "same parameters, on the joined batches of all ranks. Data parallelism promises that both "
        "have the same gradient"
    )
    if verdict not in ("agrees", "differs"):
        why = oracle.get("why") or "the repetition did not finish"
        yield page.paragraph(f"{how}. There is no verdict: {why}.")
        return
    worst, bound = (_small(oracle.get(name)) for name in ("worst", "tolerance"))
    if verdict == "agrees":
        text = f"{how}, and they have. The largest relative difference of any parameter is {worst}"
        text += f"; rounding alone explains {bound}."
    else:
        text = f"{how}, but they differ by up to {worst}, where rounding alone explains {bound}."
        text += _way(oracle)
    if oracle.get("by_rank"):
        names = " and ".join(map(str, oracle["by_rank"]))
        text += f" The process computed {names} rank by rank, as the ranks do."
    beside = "with" if verdict == "agrees" else "from"
    yield page.cards(
        [
            ("gradient of the ranks", str(verdict), f"{beside} that of one process"),
            ("largest difference", worst, "relative to the gradient"),
            ("rounding alone explains", bound, "in this number format"),
        ]
    )
    yield page.paragraph(text)


def _way(oracle: Document) -> str:
    """Describe how a gradient differs."""
    first, ratio, cosine = (oracle.get(name) for name in ("first", "ratio", "cosine"))
    text = f" The first parameter that differs is {first}." if first else ""
    if ratio is None or cosine is None or not page.is_number(ratio * cosine):
        return text
    if cosine > 0.999:
        text += f" The ranks' gradient has the same direction but {ratio:.3g} times the length."
        return text
    return f"{text} The cosine of the angle between them is {cosine:.3f}; 1 is the same direction."


def _files(files: Sequence[Document]) -> Iterator[str]:
    if not files:
        return
    rows = [(_ranks(one.get("ranks") or []), str(one.get("path", ""))) for one in files[:MOST_ROWS]]
    more = len(files) - len(rows)
    rest = [page.paragraph(f"And {more} more.")] if more else []
    yield page.section("Files, and the ranks that wrote them", page.table((), rows), *rest)


def _not_seen(run: Document) -> Iterator[str]:
    missing = run.get("not_seen") or []
    # A run that never began shows nothing: its author must fix that first.
    if missing and _several(run):
        rows = [(str(one), _HOW_TO_SEE.get(one, "")) for one in missing]
        note = page.paragraph("The doctor looked for bugs of this kind in the source only.")
        yield page.section(
            "Not part of this run, and how to include it", page.table((), rows), note
        )


def _count(number: Any, one: str, many: str = "") -> str:
    return f"{page.number(number)} {one if number == 1 else many or one + 's'}"


def _ranks(numbers: Sequence[int]) -> str:
    """Name the ranks.

    >>> _ranks([0]), _ranks([0, 1, 2]), _ranks([0, *range(2, 64)])
    ('rank 0', 'ranks 0, 1, 2', 'ranks 0, 2 to 63')
    """
    said = [str(number) for number in numbers]
    if len(numbers) > MOST_RANKS:
        # Consecutive numbers differ from their place in the list by the same amount.
        runs = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
        ends = [[number for _, number in run] for _, run in runs]
        said = [
            f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in ends
        ]
    return f"rank{'s' * (len(numbers) != 1)} {', '.join(said)}"


def _each(numbers: Sequence[float]) -> str:
    """Join the numbers of all ranks.

    >>> _each([9, 8]), _each([9] * 64), _each([9] * 63 + [8])
    ('9 + 8', '64 x 9', '8 to 9')
    """
    if len(numbers) <= MOST_RANKS:
        return " + ".join(map(page.number, numbers)) or "-"
    if len(set(numbers)) == 1:
        return f"{len(numbers)} x {page.number(numbers[0])}"
    return f"{page.number(min(numbers))} to {page.number(max(numbers))}"


def _small(value: Any) -> str:
    return f"{value:.2g}" if page.is_number(value) else "-"
