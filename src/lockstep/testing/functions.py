"""Run a function on several numbers of replicas, forked from this process, and compare."""

from __future__ import annotations

import faulthandler
import json
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lockstep import world
from lockstep.console import Console
from lockstep.convert.verify.comparison import compare, drift
from lockstep.convert.verify.runs import NUDGED, ORIGINAL, Run
from lockstep.convert.verify.verdict import DIFFERS, EQUAL, Difference
from lockstep.doctor import RULES
from lockstep.doctor.facts import frames
from lockstep.doctor.run import watched
from lockstep.errors import LockstepError, UsageError
from lockstep.probes.run_script import Outcome
from lockstep.probes.settings import Settings
from lockstep.probes.trace import read
from lockstep.processes.ports import free_port
from lockstep.processes.replicas import run_replicas
from lockstep.processes.safe_fork import reason_not_to_fork
from lockstep.testing import messages
from lockstep.testing.same import NotSame, SameOn

RETURNED = -1
"""What a function returns is compared as the weights of an optimizer of this number."""

NEEDED = (
    *("lockstep.probes.preload", "lockstep.convert.verify.in_process"),
    *("lockstep.engine.program.loop", "lockstep.testing.returned"),
)
"""Modules that import torch."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """The function that every replica runs, and its settings."""

    name: str
    call: Callable[[], Any]
    timeout: float
    flags: Mapping[str, Any]
    """Arguments of a `Loop` that replace its own."""
    exact: bool | None = None


def check(
    same: SameOn, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Raise `NotSame` unless the function returns the same on all numbers of replicas."""
    __tracebackhide__ = True
    name = f"{getattr(function, '__qualname__', repr(function))}()"
    call = partial(function, *args, **kwargs)
    _check(same, Work(name=name, call=call, timeout=same.timeout, flags={}, exact=same.exact))


def check_program(same: SameOn, script: Path, arguments: Sequence[str]) -> None:
    """Raise `NotSame` unless a script with a `lockstep.Loop` ends with the same weights."""
    __tracebackhide__ = True
    flags = {} if same.steps is None else {"max_steps": same.steps}
    name, call = messages.named(script, arguments), partial(_program, script, arguments)
    _check(same, Work(name=name, call=call, timeout=same.timeout, flags=flags, exact=same.exact))


def _program(script: Path, arguments: Sequence[str]) -> list[float]:
    """Run a script in this process, and return how its loops ended."""
    from lockstep.engine.program.loop import finished

    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent.resolve()))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as error:
        if error.code:
            raise
    # The weights after every step are compared, those after the last step too.
    return [float(one["steps"]) for one in finished]


def _check(same: SameOn, work: Work) -> None:
    __tracebackhide__ = True
    # Import here what every replica needs, once: a fork inherits it.
    for module in NEEDED:
        import_module(module)
    why = reason_not_to_fork()
    if why is not None:
        raise UsageError(
            f"{work.name} cannot be forked into replicas: {why}. Put the training into a script, "
            'and write same_on(1, 2)("train.py").'
        )
    with TemporaryDirectory(prefix="lockstep-testing-") as folder:
        place = Path(folder).resolve()
        original = _run(work, place / ORIGINAL, 1)
        exact = work.exact
        if exact is None:
            loops = _loops(place / ORIGINAL)
            exact = bool(loops) and all(one["exact"] for one in loops)
        nudged = original if exact else _run(work, place / NUDGED, 1)
        for number in same.others:
            run = _run(work, place / f"on-{number}", number)
            if run.failure:
                raise NotSame(messages.failed(work.name, number, run))
            found = compare(original, nudged, run, losses=False, exact=exact)
            apart = drift(run)
            if apart is not None and apart[0] == RETURNED and found.first is not None:
                found.first = Difference(found.first.step, "what the other ranks return")
                found.reason = "Return what all ranks share, or None on all ranks but 0."
                found.advice = ""
            if exact and found.status == EQUAL:
                found.first = _receipts(place / ORIGINAL, place / f"on-{number}")
                found.status = EQUAL if found.first is None else DIFFERS
            findings = tuple(watched(run.trace, Path(work.name), RULES))
            if found.status != EQUAL or any(one.certain for one in findings):
                said = messages.differs(work.name, found, findings)
                raise NotSame(said, found, findings)


def _loops(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "loops.json").read_text())
    return found


def _receipts(one: Path, other: Path) -> Difference | None:
    """Return the first difference between the receipts and the weights of two exact loops."""
    from lockstep.engine.run import receipts

    files = [sorted(folder.glob("loops/*/receipts.bin")) for folder in (one, other)]
    rows = [[row for file in both for row in receipts.read(file)] for both in files]
    for ours, theirs in zip(*rows, strict=False):
        if ours != theirs:
            return Difference(ours.call + 1, "the receipt of the gradient")
    if [loop["weights_sha256"] for loop in _loops(one)] != [
        loop["weights_sha256"] for loop in _loops(other)
    ]:
        return Difference(len(rows[0]), "the SHA-256 of the weights")
    return None


def _run(work: Work, folder: Path, number: int) -> Run:
    """Run the function on a number of replicas, and read what the probes noted."""
    __tracebackhide__ = True
    folder.mkdir()
    port = free_port()
    try:
        run_replicas(number, lambda rank, _: _replica(work, folder, rank, number, port))
    except UsageError:
        raise
    except LockstepError as error:
        stacks = sorted(folder.glob("stack-*"))
        stuck = [(path.name[6:], frames(path.read_text())) for path in stacks]
        lines = [f"{work.name} fails on {messages.replicas(number)}: {error}"]
        if any(stack for _, stack in stuck):
            seconds = f"{work.timeout:g} seconds"
            lines = [f"{work.name} hangs on {messages.replicas(number)}: no step in {seconds}."]
        for rank, stack in stuck:
            lines += [f"rank {rank}:", *(f"    {frame}" for frame in stack)] if stack else []
        raise NotSame("\n".join(lines)) from None
    trace = read(folder, Outcome("finished", [0] * number), alone=number == 1)
    return Run(number, trace, "")


def _replica(work: Work, folder: Path, rank: int, size: int, port: int) -> None:
    """Call the function in a forked process, under the probes."""
    from lockstep.convert.verify.in_process import training_state, weights
    from lockstep.engine.program.given import Given, give
    from lockstep.engine.program.loop import finished
    from lockstep.probes.install import install
    from lockstep.probes.recorder import Recorder
    from lockstep.testing.returned import tensors

    place = world.World(rank=rank, size=size, local_rank=rank)
    world.use_cpu_only()
    world.announce(place, port)
    console, flags = Console(quiet=True), dict(work.flags)
    give(Given(world=place, console=console, out=folder / "loops", flags=flags, apart=True))
    finished.clear()
    recorder = Recorder(Settings(folder=str(folder)))
    now = training_state.Now(recorder)
    weights.install(now, as_is=True)
    install(recorder)
    with (folder / f"stack-{rank}").open("w") as stack:

        def alive(_: Any = None) -> None:
            faulthandler.dump_traceback_later(work.timeout, exit=True, file=stack)

        recorder.on_stepped.append(alive)
        alive()
        try:
            value = work.call()
        finally:
            faulthandler.cancel_dump_traceback_later()
    exact = bool(finished) and all(one["exact"] for one in finished)
    if rank == 0 or value is not None:
        found = tensors(value, exact=exact if work.exact is None else work.exact)
        names = [f"the returned value{name}" for name in found]
        weights.compare(now, RETURNED, now.most_steps, names, list(found.values()))
    if rank == 0:
        loops = [{key: one[key] for key in ("exact", "weights_sha256")} for one in finished]
        (folder / "loops.json").write_text(json.dumps(loops))
    recorder.close()
