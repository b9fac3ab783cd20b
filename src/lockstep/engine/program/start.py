"""Start a loop: join the replicas, and build the parts that one process needs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from lockstep.console import Console, LiveProgress, Progress
from lockstep.engine.group import Group
from lockstep.engine.program.check import Checks
from lockstep.engine.program.exchange import Wire
from lockstep.engine.program.given import Given
from lockstep.engine.program.record import ProgramRecord
from lockstep.engine.program.settings import Settings
from lockstep.engine.program.state import ProgramState
from lockstep.engine.program.step import Computing, Notes
from lockstep.engine.program.steps import Steps
from lockstep.engine.program.watch import BufferWatch
from lockstep.engine.recipe.prepare import configure_torch, machine_facts
from lockstep.engine.recipe.recipe import Precision
from lockstep.engine.run.run_folder import new_folder
from lockstep.errors import PlanError
from lockstep.layers.shards import Shards
from lockstep.world import World, gpu_count, launched, restarts


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of a loop in one process. They do not know each other."""

    group: Group
    progress: Progress
    state: ProgramState
    computing: Computing
    wire: Wire | None
    checks: Checks
    buffers: BufferWatch
    record: ProgramRecord
    steps: Steps

    def begin(self, epochs: int, settings: Settings) -> None:
        """Compare the replicas, restore a checkpoint, and show the progress."""
        self.state.compare_weights(self.group)
        self.checks.names = self.state.names()
        if self.record.restore(accept_changes=settings.accept_changes):
            for batches in self.state.batches:
                self.checks.first_batches.add((batches.passes, batches.next))
        self.buffers.remember()
        try:
            steps = epochs * len(self.state.batches[0])
        except (TypeError, IndexError):
            steps = settings.max_steps or 0
        if settings.max_steps is not None:
            steps = min(steps, settings.max_steps)
        self.progress.begin(steps or 1, self.record.iterations, epochs)


def start(settings: Settings, given: Given | None) -> Parts:
    """Join the other replicas and build the parts of a loop."""
    world = given.world if given is not None else _found_world(settings.device)
    plan = settings.plan(world.size)
    group = Group(
        world,
        store=given.store if given is not None else None,
        timeout=settings.timeout,
        share_gpu=given is not None and given.share_gpu,
    )
    precision = Precision(settings.precision)
    configure_torch(
        group.device, threads=settings.threads, precision=precision, exact=settings.exact
    )
    console = given.console if given is not None else Console(quiet=settings.quiet)
    progress = LiveProgress(console, settings.name) if world.is_first else Progress()
    own = plan.shards_per_replica
    mine = range(world.rank * own, (world.rank + 1) * own)
    shards = Shards(own, group.device, first=mine.start, seed=settings.seed)
    computing = Computing(group, plan, shards, settings.seed, precision)
    checks = Checks(
        plan, group, settings.seed, settings.check_every, progress, exact=settings.exact
    )
    state = ProgramState()
    for name in ("global_batch", "shards", "seed", "exact"):
        state.fact(name, getattr(settings, name))
    folder = _folder(settings, group)
    # A launcher that restarts its processes wants them to continue.
    resume = settings.resume or bool(restarts() and (folder / "run.json").exists())
    facts = {
        "recipe": _described(settings),
        "exact": settings.exact,
        "replicas": world.size,
        "shards_per_replica": own,
        "machine": machine_facts(settings.threads, group.device),
    }
    record = ProgramRecord(
        group,
        state,
        folder,
        progress,
        facts,
        Notes(plan.shards, mine),
        keep=settings.keep,
        checkpoint_every=settings.checkpoint_every,
        log_every=settings.log_every,
        resume=resume,
    )
    record.claim()
    buffers = BufferWatch(progress, exact=settings.exact)
    return Parts(
        group=group,
        progress=progress,
        state=state,
        computing=computing,
        wire=None if group.alone else Wire(group, settings.timeout, exact=settings.exact),
        checks=checks,
        buffers=buffers,
        record=record,
        steps=Steps(group, state, computing, record, checks, buffers),
    )


def _described(settings: Settings) -> dict[str, object]:
    """Return the program in words and numbers, for run.json and the report."""
    return {
        "name": settings.name,
        "program": Path(sys.argv[0]).name if sys.argv else "",
        "global_batch": settings.global_batch,
        "shards": settings.shards,
        "seed": settings.seed,
        "precision": str(settings.precision),
        "metrics": {},
        "target": None,
    }


def _folder(settings: Settings, group: Group) -> Path:
    """Return the folder of the run; the first replica makes one up if none was named."""
    if settings.out is not None:
        return settings.out
    made = str(new_folder(Path("runs"), settings.name)) if group.world.is_first else None
    return Path(group.objects(made)[0])


def _found_world(device: str) -> World:
    """Return this process's place: among those of a launcher, or alone."""
    rank, size, local = launched() or (0, 1, 0)
    gpus = 0 if device == "cpu" else gpu_count()
    if device == "cuda" and not gpus:
        raise PlanError("device is 'cuda', but torch finds no GPU here. Use device='cpu'.")
    if gpus and local >= gpus:
        raise PlanError(
            f"the launcher started process {local} on this machine, which has {gpus} GPU(s). Start "
            "one process per GPU, or use device='cpu'."
        )
    place = f"cuda:{local}" if gpus else "cpu"
    return World(rank=rank, size=size, local_rank=local, device=place)
