"""Run a script once, in a folder where it cannot change the user's files, and read the notes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lockstep.probes.run_script import ScriptRun, run
from lockstep.probes.settings import Settings
from lockstep.probes.trace import Event, Rank, Trace, read

SMALL = 8_000_000
"""The largest file or folder, in bytes, that is copied; larger ones are linked."""
FEW = 500
"""The most files of a folder that is copied."""
CROWD = 40
"""Entries of a folder above, of which only those are linked that the script names."""
LEVELS = 2
"""How many folders above the working folder a script may ask for."""
MODULES = 200
_LISTS = re.compile(r"glob|listdir|iterdir|scandir|walk|\.\./[\"'{]")
"""How a script asks for entries that it does not name."""
_WORD = re.compile(r"[\w.-]+")
_UP = re.compile(r"\.\./|[\"']\.\.[\"']|pardir")
LEFT_OUT = {".git", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
INSIDE = "lockstep.convert.verify.in_process"
WHOLE = f"{INSIDE}.whole_passes"
DOUBLE = f"{INSIDE}.float64"
BY_HAND = f"{INSIDE}.hand_updates"
OBSERVE = "lockstep.convert.observe.in_process"
"""Sees what the original does. Installed last: it watches what the others put in place."""
ORIGINAL, NUDGED = "original", "nudged"
"""Runs of the original: as it is, and with its first weights moved by one rounding."""
_LOST = re.compile(
    r"Connection (closed|reset) by peer|connectFullMesh|Broken pipe|recvValue failed"
)
_TIME = re.compile(
    r"\d{6,8}[-_T]?\d{4,6}|\d{4}-\d\d-\d\d(\D\d\d\D\d\d(\D\d\d)?)?|\d{10,}"
    r"|\d\d([-_.:]\d\d){2,}|[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d"
)
TAIL = 15
"""Lines of the log that are shown."""
ERROR = re.compile(r"[\w.]*(Error|Exception)\b")
"""How the last line of a traceback begins."""
ABSENT = re.compile(r"No module named '(\w+)(?:.*type: (.+))?")
PACKAGES = {
    "PIL": "pillow",
    "cv2": "opencv-python",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Packages whose name differs from that of their module."""


@cache
def _texts(home: Path) -> tuple[str, ...]:
    """Return the modules beside a script, as text."""
    files = sorted(home.rglob("*.py"))[:MODULES]
    return tuple(path.read_text(errors="replace") for path in files)


@cache
def _above(home: Path, working: Path) -> tuple[str, ...]:
    """Return the names of the working folder and those above it, if a script may ask for them."""
    if not any(_UP.search(text) for text in _texts(home)):
        return ()
    parents = [p for p in working.parents if len(p.parts) > 1 and p != Path.home()]
    return tuple(p.name for p in reversed([working, *parents][: LEVELS + 1]))


@cache
def asked_for(home: Path, folder: Path, arguments: tuple[str, ...]) -> tuple[Path, ...]:
    """Return what a script may want of a folder above its own: all, or what it names in a crowd."""
    entries = sorted(folder.iterdir())
    texts = (*_texts(home), *arguments)
    if len(entries) > CROWD and not any(_LISTS.search(text) for text in texts):
        words = {word for text in texts for word in _WORD.findall(text)}
        entries = [entry for entry in entries if entry.name in words]
    return tuple(entries[:FEW])


def _beside(plan: Plan, scratch: Path, names: tuple[str, ...]) -> Path:
    """Make links to what lies beside the working folder and above it; return its place."""
    place = scratch
    for depth, name in enumerate(names):
        if depth:
            source = plan.working.parents[len(names) - 1 - depth]
            for entry in asked_for(plan.home, source, plan.arguments):
                if entry.name != name and not (place / entry.name).exists():
                    (place / entry.name).symlink_to(entry.resolve(), entry.is_dir())
        place = place / name
        place.mkdir()
    return place


def furnish(scratch: Path, home: Path, working: Path) -> Path:
    """Fill `scratch` with the files of `working` and `home`; return the home inside it.

    `home` is the folder whose modules and data a script expects beside itself. If the script is
    started from a folder above its home, its home lies as deep in the scratch folder.
    """
    inner = home.relative_to(working) if home.is_relative_to(working) else Path()
    place = scratch
    _fill(scratch, working, apart=inner.parts[0] if inner.parts else "")
    for depth, part in enumerate(inner.parts):
        place = place / part
        place.mkdir()
        last = depth + 1 == len(inner.parts)
        source = working.joinpath(*inner.parts[: depth + 1])
        _fill(place, source, apart="" if last else inner.parts[depth + 1])
    if not inner.parts and home != working:
        _fill(place, home)
    return place


def _fill(target: Path, source: Path, apart: str = "") -> None:
    for entry in sorted(source.iterdir()):
        new = target / entry.name
        if entry.name in LEFT_OUT or entry.name == apart or new.exists():
            continue
        if not _small(entry):
            new.symlink_to(entry.resolve(), target_is_directory=entry.is_dir())
        elif entry.is_dir():
            shutil.copytree(entry, new, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        else:
            shutil.copyfile(entry, new)


def _small(entry: Path) -> bool:
    if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
        return False
    bytes_left, count = SMALL, FEW
    for path in entry.rglob("*") if entry.is_dir() else (entry,):
        count -= 1
        bytes_left -= path.lstat().st_size
        if bytes_left < 0 or count < 0 or not (path.is_file() or path.is_dir()):
            return False
    return True


def alone_or_launched(replicas: int) -> int:
    """Start one replica with plain python, and several as torchrun does."""
    return 0 if replicas == 1 else replicas


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Settings that all runs share."""

    folder: Path
    """Folder that holds the folders of all runs."""
    home: Path
    """Folder of the original, with the files that a script expects beside itself."""
    name: str
    """File name of the script in all runs, since some scripts print it."""
    working: Path
    """Folder that the user would start the script in."""
    arguments: tuple[str, ...]
    steps: int | None
    """Optimizer steps after which a run ends; None lets it end by itself."""
    timeout: float
    early: tuple[str, ...]
    by_hand: bool = False
    """Whether the script updates its weights itself, without an optimizer."""
    inside: str = INSIDE
    """The module that makes chance the same in all runs, and notes weights."""
    processes: Callable[[int], int] = alone_or_launched
    """How many ranks to start for a number of replicas; 0 means plain python."""
    stand_in_gpus: bool = True
    """Whether the CPU stands in for GPUs."""
    stand_in_data: bool = True
    """Whether to stand in for missing data and libraries."""
    losses: bool = True
    """Whether the mean of the ranks' losses must be the loss of the original, too."""
    exact: bool = False
    """Whether all bits must agree, on any number of replicas."""
    converted: bool = False
    """Whether ranks must hold what one process holds, and write its files once."""
    evaluated: int = 16
    """The most batches of an evaluation; the number of ranks must divide it."""
    further: int = 0
    """More steps that a run may make if the original ends by itself before them."""

    def arguments_on(self, replicas: int) -> tuple[str, ...]:
        """Return the arguments, with the number of replicas in place of `{replicas}`."""
        return tuple(one.replace("{replicas}", str(replicas)) for one in self.arguments)

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules that the probes install first, in every process."""
        return (*self.early, BY_HAND) if self.by_hand else self.early


@dataclass
class Run:
    """One run of a script."""

    replicas: int
    trace: Trace
    log: str
    """Last lines of the rank that failed, or else of rank 0."""
    home: Path = Path()
    """The folder of the script in this run."""
    working: Path = Path()
    """The folder that it was started in."""

    @property
    def first(self) -> Rank:
        """The trace of rank 0."""
        return self.trace.ranks[0]

    @property
    def ranks(self) -> list[Rank]:
        """The traces of all ranks."""
        return self.trace.ranks

    @property
    def steps(self) -> list[Event]:
        """The weights after every step of rank 0."""
        return list(self.first.of("weights"))

    def losses(self) -> list[float]:
        """Return the loss of every backward, averaged over the ranks."""
        each = [[event["value"] for event in rank.of("loss")] for rank in self.ranks]
        return [sum(same) / len(same) for same in zip(*each, strict=False)]

    def weighed_losses(self) -> list[float]:
        """Return the same, where ranks with more rows of a batch count for more."""
        found = []
        for same in zip(*(rank.of("loss") for rank in self.ranks), strict=False):
            rows = sum(event["rows"] for event in same)
            total = sum(event["value"] * event["rows"] for event in same)
            found.append(total / rows if rows else sum(e["value"] for e in same) / len(same))
        return found

    @property
    def files(self) -> dict[str, Event]:
        """The files that the ranks wrote, by path: what the first rank that wrote each noted."""
        events = [event for rank in reversed(self.ranks) for event in rank.of("file")]
        return {timeless(event["path"]): event for event in events}

    @property
    def ended(self) -> bool:
        """Whether the script ended by itself."""
        return not self.failure and not any(self.trace.of("stopped"))

    @property
    def still(self) -> bool:
        """Whether the weights never change."""
        seen = {(event["optimizer"], event["digest"]) for event in self.steps}
        return len(self.steps) > len(seen) == len({optimizer for optimizer, _ in seen})

    @property
    def by_hand(self) -> bool:
        """Whether the run was stopped because the script updates its weights itself."""
        return any(self.trace.of("by_hand"))

    @property
    def _crashed(self) -> bool:
        # A process that takes too long to exit is killed, and has no exit code.
        outcome = self.trace.outcome
        ended = None in outcome.codes and ERROR.match(self.log.rpartition("\n")[2])
        return outcome.how == "crashed" or bool(ended)

    @property
    def failure(self) -> str:
        """Why there is nothing to compare, in one sentence; empty if there is."""
        how = self.trace.outcome.how
        if how == "hung":
            # Without the scratch folder, which no longer exists when a person reads this.
            doing = {re.sub(r"\S+-scratch/", "", s.doing) for s in self.trace.outcome.stuck}
            return f"it hangs: {', '.join(sorted(doing))}."
        if self._crashed:
            if "usage:" in self.log and "error:" in self.log:
                return "it needs arguments. Give them after --."
            return _absent(self.log) or "it crashes."
        if len(self.ranks) < self.replicas:
            return f"its {self.replicas} ranks never join one process group."
        if not self.ranks or not self.steps:
            return "no optimizer makes a step."
        return ""


Program = Path | Mapping[str, bytes]
"""A script, or the files that change in the folder of the original, each by its relative name."""


def started(
    plan: Plan,
    name: str,
    script: Program,
    replicas: int,
    *,
    watched: bool = False,
    after: Run | None = None,
) -> Run:
    """Run a script in its own scratch folder. Note what it does, if it is to be `watched`.

    With `after`, it finds the files that another run has written.
    """
    folder = plan.folder / name
    folder.mkdir()
    scratch = scratch_of(plan, name)
    copy = laid_out(plan, name, script)
    for path in [event["path"] for event in after.files.values()] if after is not None else ():
        assert after is not None
        left, own = after.working / path, scratch / path
        own.parent.mkdir(parents=True, exist_ok=True)
        own.unlink(missing_ok=True)
        shutil.copyfile(left, own)
    settings = Settings(
        folder=str(folder),
        steps=plan.steps,
        further=plan.further,
        evaluated=plan.evaluated,
        resumed=after is not None,
        gpus=replicas if plan.stand_in_gpus else None,
        early=(*plan.modules, plan.inside, *(OBSERVE,) * watched),
        stand_in_data=plan.stand_in_data,
    )
    job = ScriptRun(
        script=copy,
        arguments=plan.arguments_on(replicas),
        ranks=plan.processes(replicas),
        settings=settings,
        timeout=plan.timeout,
        folder=scratch,
        other_hashes=True,
    )
    outcome = run(job)
    trace = read(folder, outcome, alone=replicas == 1)
    last = _last_words(outcome.logs, outcome.codes, str(scratch))
    return Run(replicas, trace, last, home=copy.parent, working=scratch)


def laid_out(plan: Plan, name: str, script: Program) -> Path:
    """Copy the script to the scratch folder of a run, under the name of the original."""
    Path(plan.folder, f"{name}-scratch").mkdir()
    names = _above(plan.home, plan.working)
    _beside(plan, Path(plan.folder, f"{name}-scratch"), names)
    home = furnish(scratch_of(plan, name), plan.home, plan.working)
    place = home / plan.name
    if isinstance(script, Path):
        place.unlink(missing_ok=True)
        return Path(shutil.copyfile(script, place))
    for other, content in script.items():
        target = home / other
        _own_folders(home, target.parent)
        target.unlink(missing_ok=True)
        target.write_bytes(content)
    return place


def _own_folders(home: Path, folder: Path) -> None:
    """Copy linked folders on the way to a file that changes: the user's stay as they are."""
    for part in (*reversed(folder.relative_to(home).parents), folder.relative_to(home)):
        inner = home / part
        if inner.is_symlink():
            source = inner.resolve()
            inner.unlink()
            inner.mkdir()
            _fill(inner, source)


def scratch_of(plan: Plan, name: str) -> Path:
    """Return the folder of a run that stands for the working folder."""
    return Path(plan.folder, f"{name}-scratch", *_above(plan.home, plan.working))


def timeless(path: str) -> str:
    """Return a path with a mark in place of the time, if that is in its name."""
    return _TIME.sub("#", path)


def _absent(log: str) -> str:
    """Return a sentence on the missing package that ended a script, if one did."""
    found = ABSENT.search(log.rpartition("\n")[2])
    if found is None:
        return ""
    command = found[2] or f"pip install {PACKAGES.get(found[1], found[1])}"
    return f"it imports {found[1]}, which is not installed: {command}."


def _last_words(logs: list[Path], codes: list[int | None], scratch: str) -> str:
    """Return the last lines of the rank that failed first; others only lose their connection."""
    failed = [log for log, code in zip(logs, codes, strict=False) if code]
    failed.sort(key=lambda log: _LOST.search(log.read_text(errors="replace")) is not None)
    for log in (*failed, *logs):
        text = log.read_text(errors="replace").replace(f"{scratch}/", "")
        lines = [line for line in text.splitlines() if line.strip()]
        if lines:
            return "\n".join(lines[-TAIL:])
    return ""
