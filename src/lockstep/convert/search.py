"""Prove a conversion, and try what the run of the original leaves open until one is proven."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from operator import mul
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lockstep.console import Progress
from lockstep.convert.analysis.parts import Parts
from lockstep.convert.conversion import Conversion, convert, read_only
from lockstep.convert.observe import Place, Spot, moved, readouts, seen
from lockstep.convert.rewrites.batches import sources
from lockstep.convert.rewrites.forwards import suggested
from lockstep.convert.rewrites.readouts import HELPERS
from lockstep.convert.verify.comparison import PRINTS
from lockstep.convert.verify.proof import Proof
from lockstep.convert.verify.runs import WHOLE, Plan, Run
from lockstep.convert.verify.verdict import DIFFERS, EQUAL, Comparison, Verdict
from lockstep.convert.work import AVERAGE, DDP, UNUSED, Options, Work
from lockstep.errors import ConvertError
from lockstep.probes.spans import Span
from lockstep.source.script import Script
from lockstep.source.training import Training

Number = tuple[str, Any, int]
"""How a number was read, the number, and the rows of the batch before."""
TRIES = 12
"""The most results to try on two processes."""
CLOSE = 1e-3
"""How far two numbers may be apart, in parts of the larger, to count as the same."""
FURTHER = 18
"""How many more steps a program may make to its end, to compare what comes then, too."""
READ = 24
"""How many numbers of one place are looked at."""
COMPARED = 6
"""How many that differ are compared: later ones are further apart by rounding."""
_REDUCER = ("find_unused_parameters", "prior iteration", "marked as ready", "marked ready")
"""What DDP says about parameters that a step leaves out or uses twice."""


@dataclass(frozen=True)
class Proven:
    """A conversion and the verdict on it."""

    conversion: Conversion
    verdict: Verdict


def prove(
    script: Script,
    training: Training,
    *,
    options: Options,
    arguments: tuple[str, ...] = (),
    replicas: tuple[int, ...] = (1, 2, 4),
    steps: int = 6,
    timeout: float = 60.0,
    early: tuple[str, ...] = (),
    progress: Progress | None = None,
) -> Proven:
    """Run the original, convert it as the run suggests, and compare both."""
    with TemporaryDirectory(prefix="lockstep-convert-") as folder:
        original = script.path.resolve()
        if original.suffix != ".py" or not original.is_file():
            original = Path(folder, "script", "script.py").resolve()
            original.parent.mkdir()
            original.write_text(script.text)
        runs = Path(folder, "runs").resolve()
        runs.mkdir()
        plan = Plan(
            folder=runs,
            home=original.parent,
            name=original.name,
            working=Path.cwd().resolve(),
            arguments=arguments,
            steps=steps,
            timeout=timeout,
            early=early,
            inside=WHOLE,
            converted=True,
            further=FURTHER,
        )
        proof = Proof(plan, original, progress or Progress(), watched=True)
        if proof.failure is not None:
            return Proven(read_only(script, options), proof.failure)
        return _Search(script, training, options, proof).proven(replicas)


class _Search:
    """Looks for the options under which a result is proven."""

    def __init__(self, script: Script, training: Training, options: Options, proof: Proof) -> None:
        self.script, self.training, self.given, self.proof = script, training, options, proof
        self.seen = seen(proof.original.first, self._place(proof.original))
        try:
            flags = convert(training, self.seen, Options()).work.flags
        except ConvertError:
            flags = {"uneven"}
        if self.seen.loaders and "uneven" not in flags:
            self.proof = proof.without_rests()
        self.theirs = readouts(self.proof.original.first, self._place(self.proof.original))

    def _place(self, run: Run) -> Place:
        return moved(run.home, self.proof.plan.name, self.script.path.resolve())

    def proven(self, replicas: tuple[int, ...]) -> Proven:
        """Return the first result that is proven, or the one that comes closest."""
        # Options of the user change the result on purpose: prove what they are added to.
        options = Options()
        several = next((n for n in replicas if n > 1), None)
        known: dict[int, tuple[Run, Comparison]] = {}
        if several is not None:
            options, known = self._chosen(options, several)
        result = convert(self.training, self.seen, options)
        verdict = self.proof.of(self._files(result), replicas, known=known)
        if self.given != Options():
            own = replace(
                options,
                scale_batch=self.given.scale_batch,
                sync_batch_norm=self.given.sync_batch_norm,
            )
            result = convert(self.training, self.seen, own)
        return Proven(result, verdict)

    def _chosen(
        self, options: Options, number: int
    ) -> tuple[Options, dict[int, tuple[Run, Comparison]]]:
        """Try options on some processes; return the best, and the run with them."""
        best: tuple[tuple[bool, bool, int], Options, Any] | None = None
        tried: set[Options] = set()
        waiting, others = [options], self._sources()
        refused: ConvertError | None = None
        while len(tried) < TRIES:
            if not waiting and (best is None or best[0][0]):
                # Other lines of the script may give the batches.
                waiting += [one for one in [next(others, None)] if one is not None]
            if not waiting:
                break
            now = waiting.pop(0)
            if now in tried:
                continue
            tried.add(now)
            try:
                result = convert(self.training, self.seen, now)
            except ConvertError as error:
                refused = refused or error
                continue
            self.proof.progress.say(f"running the result on {number} process(es)")
            run, found = self.proof.on(self._files(result), number, watched=True)
            right = _trains_alike(found)
            score = (not right, found.status != EQUAL, found.apart if right else 0)
            if best is None or score < best[0]:
                best = score, now, (run, found)
            if right and not found.apart:
                break
            waiting += [o for o in self._following(now, run, found, result) if o not in tried]
        if best is None:
            raise refused or ConvertError("nothing is left to try.")
        return best[1], {number: best[2]}

    def _sources(self) -> Iterator[Options]:
        """Yield options for batches that no DataLoader of the script makes."""
        if any(loader.direct for loader in self.seen.loaders):
            return
        number = len(sources(Work(Parts(self.training), Options(), self.seen)))
        for dimension in (0, 1):
            for one in range(1, number + 1):
                yield Options(source=one, dimension=dimension)

    def _following(
        self, now: Options, run: Run, found: Comparison, result: Conversion
    ) -> Iterator[Options]:
        """Yield the options that the outcome of a run suggests."""
        if not _trains_alike(found):
            way = now.averaging or suggested(result.work)
            if run.failure and any(word in run.log for word in _REDUCER):
                if way == DDP:
                    yield replace(now, averaging=UNUSED)
                if way != AVERAGE:
                    yield replace(now, averaging=AVERAGE)
            elif run.failure and now.spread and result.work.seen.evaluates:
                yield replace(now, spread=False)
            elif run.failure and not now.numbers and not now.source:
                yield replace(now, numbers=True)
            elif "it is a sum over the batch" in found.reason and not now.sums:
                yield replace(now, sums=True)
            elif now.items and result.work.seen.uneven:
                # A mean of each sample, perhaps.
                yield replace(now, items=False)
            if not run.failure and not now.ratios:
                yield replace(now, ratios=True)
            return
        if not now.readouts:
            kinds = self._kinds(run, result)
            if kinds:
                first = replace(now, readouts=tuple(kinds.items()))
                yield first
                gathered = {spot: kind for spot, kind in kinds.items() if "sum" not in kind}
                if any(kind.partition(",")[0] in ("rows", "bag") for kind in kinds.values()):
                    # What is counted from the rows of all processes is whole already.
                    yield replace(now, readouts=tuple(gathered.items()), counts=True)
                if any("sum" in kind for kind in kinds.values()):
                    means = {s: "mean" if "sum" in kind else kind for s, kind in kinds.items()}
                    yield replace(first, counts=True)
                    yield replace(first, readouts=tuple(means.items()))
                else:
                    yield replace(first, counts=True)
                return
            yield replace(now, counts=True)
        if found.status == DIFFERS and now.spread and result.work.seen.evaluates:
            yield replace(now, spread=False)

    def _kinds(self, run: Run, result: Conversion) -> dict[Spot, str]:
        """Return how the numbers combine that the result read from tensors."""
        drafts = {str(s.path.resolve()): d for s, d in result.work.drafts.items()}
        place = self._place(run)
        ours: list[dict[Spot, list[Any]]] = []
        for rank in run.ranks:
            mine: dict[Spot, list[Any]] = defaultdict(list)
            for (span, name), values in readouts(rank, place).items():
                draft = drafts.get(span.path)
                old = draft.origin(span.line, span.column) if draft is not None else None
                if old is not None:
                    mine[Span(span.path, *old, 0), name] += values
            ours.append(mine)
        found = {}
        for (span, name), theirs in self.theirs.items():
            key = span._replace(first=0), name
            each = [mine.get(key, []) for mine in ours]
            kind = _kind(theirs, each)
            if kind.partition(",")[0] in HELPERS:
                found[span, name] = kind
        return found

    def _files(self, result: Conversion) -> dict[str, bytes]:
        home = result.script.path.resolve().parent
        encodings = {s.path: s.encoding for s in result.work.scripts}
        files = {}
        for path, text in result.files.items():
            name = path.resolve().relative_to(home).as_posix()
            if path == result.script.path:
                name = self.proof.plan.name
            files[name] = text.encode(encodings.get(path, "utf-8"))
        return files


def _trains_alike(found: Comparison) -> bool:
    """Return whether all weights agree, whatever the result prints."""
    prints = found.first is not None and found.first.what in ("the evaluation", PRINTS)
    return found.status == EQUAL or (found.status == DIFFERS and prints)


def _kind(theirs: list[Number], ours: list[list[Number]]) -> str:
    """Return how the numbers of the processes make those of one: same, mean, sum, rows or "".

    Where an evaluation reads the same number on all processes, "sum, shared" or "rows, shared".
    """
    kinds = ["mean", "sum", "rows", "bag"]
    apart, shared = 0, False
    for turn in range(min(READ, len(theirs), *(len(mine) for mine in ours))):
        how, whole, _ = theirs[turn]
        parts = [mine[turn][1] for mine in ours]
        rows = [mine[turn][2] for mine in ours]
        if _fits("same", whole, parts, rows):
            shared = shared or any(_flat(whole))
            continue
        apart += 1
        if how == "__bool__":
            return ""
        if apart <= COMPARED:
            kinds = [kind for kind in kinds if _fits(kind, whole, parts, rows)]
    if not apart:
        return "same"
    if not kinds:
        return ""
    return f"{kinds[0]}, shared" if shared and kinds[0] != "mean" else kinds[0]


def _fits(kind: str, whole: Any, parts: list[Any], rows: list[int]) -> bool:
    if kind in ("rows", "bag"):
        if not isinstance(whole, list) or not all(isinstance(part, list) for part in parts):
            return False
        if kind == "rows":
            dealt = [row for same in zip_longest(*parts, fillvalue=parts) for row in same]
            found = [row for row in dealt if row is not parts]
            return len(found) == len(whole) and _near(whole, found)
        # A collate function may sort the samples: then rows are in another order.
        found = [row for part in parts for row in part]
        plain = all(isinstance(row, int | float) for row in (*whole, *found))
        return plain and len(found) == len(whole) and _near(sorted(whole), sorted(found))
    a, each = _flat(whole), [_flat(part) for part in parts]
    if any(len(part) != len(a) for part in each):
        return False
    if kind == "same":
        # All processes hold the same weights, so what each computes alike agrees to the bit.
        return all(_near(part, each[0], 1e-12) for part in each) and _near(a, each[0])
    weights = [1.0] * len(each)
    if kind == "mean":
        of = sum(rows)
        weights = [n / of for n in rows] if of else [1 / len(each)] * len(each)
    return _near(a, [sum(map(mul, same, weights)) for same in zip(*each, strict=True)])


def _flat(value: Any) -> list[float]:
    if isinstance(value, list):
        return [number for part in value for number in _flat(part)]
    return [float(value)]


def _near(a: Any, b: Any, close: float = CLOSE) -> bool:
    return all(
        x == y or math.isclose(x, y, rel_tol=close, abs_tol=close / 1000) or (x != x and y != y)
        for x, y in zip(_flat(a), _flat(b), strict=True)
    ) and len(_flat(a)) == len(_flat(b))
