"""Start a loop: join the replicas, and build the parts that one process needs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

import lockstep
from lockstep.console import Console, LiveProgress, Progress
from lockstep.data.readers import Collate, Collator, IndexedReader
from lockstep.engine.checks.buffers import BufferWatch
from lockstep.engine.checks.suspects import asks_for_worker, check_generators, refuse_closure
from lockstep.engine.checks.threads import threads_of
from lockstep.engine.group import Group
from lockstep.engine.model import ShardedModel
from lockstep.engine.program.check import Checks
from lockstep.engine.program.compiled import CompiledLosses
from lockstep.engine.program.evaluate import Evaluation
from lockstep.engine.program.exchange import Carrier
from lockstep.engine.program.given import Given
from lockstep.engine.program.noise import ProgramNoise
from lockstep.engine.program.notes import Notes
from lockstep.engine.program.record import ProgramRecord
from lockstep.engine.program.recorded import Recordings
from lockstep.engine.program.settings import Settings
from lockstep.engine.program.sources import check_length, has_index
from lockstep.engine.program.state import ProgramState
from lockstep.engine.program.step import Computing, Stepper
from lockstep.engine.program.steps import Steps
from lockstep.engine.recipe.job import Speed
from lockstep.engine.recipe.plan import MOST_COMPILED, Plan
from lockstep.engine.recipe.prepare import (
    check_layers,
    configure_torch,
    in_bfloat16,
    machine_facts,
)
from lockstep.engine.recipe.recipe import Precision, names_in
from lockstep.engine.run.details import Details
from lockstep.engine.run.run_folder import new_folder
from lockstep.errors import DataError, PlanError, RecipeError
from lockstep.layers.shards import Shards
from lockstep.processes.lazy_dynamo import put_off_dynamo
from lockstep.source.own_loop import reads_of_world_size
from lockstep.world import World, gpu_count, launched, restarts


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of a loop in one process. They do not know each other."""

    group: Group
    progress: Progress
    state: ProgramState
    computing: Computing
    carrier: Carrier | None
    checks: Checks
    buffers: BufferWatch
    record: ProgramRecord
    steps: Steps
    speed: Speed = Speed.EAGER
    """How losses are computed."""
    why: str = ""
    """Why they are not computed as the program asked for."""
    noise: bool = False
    """Whether the noise scale is measured."""

    def begin(self, epochs: int, settings: Settings) -> None:
        """Compare the replicas, restore a checkpoint, and show the progress."""
        self.state.compare_weights(self.group)
        self.state.compare_samples(self.group)
        if settings.exact and settings.check_every:
            self.state.refuse_memories(self.computing.plan.shard_size, self.checks.may_change)
        self.checks.names = self.state.names()
        if settings.exact and (found := reads_of_world_size(_own_files())):
            self.progress.warn(
                f"the program asks for the number of replicas ({found[0]}). A learning rate or a "
                "number of steps that follows from it makes another run on other replicas."
            )
        self.warn_of_threads()
        for batches in self.state.batches if settings.exact else ():
            if text := asks_for_worker(batches.reader.data):
                self.progress.warn(text)
        if names := self.state.unkept_schedulers():
            self.progress.warn(
                f"a scheduler changes the rates of {names[0]}, and no checkpoint holds it: a "
                "resumed run would begin its schedule anew. Call loop.keep(scheduler=scheduler)."
            )
        if self.record.restore(accept_changes=settings.accept_changes):
            for batches in self.state.batches:
                self.checks.begin_with(batches.passes, batches.next)
        try:
            steps = epochs * len(self.state.batches[0])
        except (TypeError, IndexError):
            steps = settings.max_steps or 0
        if settings.max_steps is not None:
            steps = min(steps, settings.max_steps)
        self.progress.begin(steps or 1, self.record.iterations, epochs)

    def warn_of_threads(self) -> None:
        """Warn once of threads of the program, which no check can follow."""
        checks = self.checks
        if not checks.exact or checks.warned_of_threads or not (found := threads_of(_own_files())):
            return
        checks.warned_of_threads = True
        self.progress.warn(
            f"the program runs a thread of its own ({found[0]}). What it changes, it changes at "
            "another step in every run: exact mode cannot promise equal bits if the weights depend "
            "on that."
        )

    def add_model(self, module: nn.Module, name: str) -> None:
        """Move a model to the device, and let its layers work per shard."""
        check_layers(module)
        if lazy := [n for n, p in module.named_parameters() if is_lazy(p)]:
            raise RecipeError(
                f"{lazy[0]} has no shape yet: it belongs to a lazy layer. Call the model on a "
                "sample before loop.model, or use a layer whose sizes are given."
            )
        module.to(self.group.device)
        if self.computing.precision is Precision.PURE_BF16:
            in_bfloat16(module)
        found = ShardedModel(module, self.computing.shards, self.group)
        if found.module is not module:
            raise RecipeError(
                f"the model is a single {type(module).__name__}, which lockstep must replace. Put "
                "it into nn.Sequential."
            )
        self.computing.modules.append(module)
        self.computing.parameters.extend(module.parameters())
        self.state.add_model(name, found)
        self.buffers.add(module)

    def add_optimizer(
        self, optimizer: torch.optim.Optimizer, clip: float | None, name: str
    ) -> None:
        """Add an optimizer of parameters that the models of the loop have."""
        state = self.state
        kind, known = type(optimizer).__name__, state.names()
        odd = [p for g in optimizer.param_groups for p in g["params"] if p not in known]
        if odd:
            raise RecipeError(
                f"{kind} holds {len(odd)} parameter(s) of no model of this loop, the first of "
                f"shape {tuple(odd[0].shape)}. Call model = loop.model(model) before you make the "
                "optimizer, also for a loss that has parameters; in a recipe, give the optimizer "
                "only parameters of its model."
            )
        refuse_closure(optimizer)
        if text := check_generators(optimizer, exact=self.checks.exact):
            self.progress.warn(text)
        number = len(state.steppers)
        name = name or (kind.lower() + (f"_{number + 1}" if number else ""))
        if name in state.steppers:
            raise RecipeError(f"two optimizers are called {name!r}. Give one of them a name=.")
        state.fact(f"optimizer {name}", kind)
        stepper = Stepper(self.computing, optimizer, self.carrier, clip, exact=self.checks.exact)
        if self.speed is Speed.COMPILE:
            computing = self.computing
            stepper.compiled = CompiledLosses(
                computing.modules, computing.parameters, self.progress, computing.precision.rounding
            )
        if self.speed is Speed.GRAPH:
            stepper.recordings = Recordings(
                self.computing.modules, self.group.device, self.progress, exact=self.checks.exact
            )
        if self.noise:
            plan = self.computing.plan
            parts = plan.accumulation * self.group.world.size
            stepper.noise = ProgramNoise(self.group, optimizer, parts, plan.global_batch)
        state.steppers[name] = stepper
        for stepper in state.steppers.values():
            stepper.only = len(state.steppers) == 1

    def described_speed(self) -> dict[str, str]:
        """Return how the steps were computed, for run.json."""
        used, why = False, self.why
        for stepper in self.state.steppers.values():
            recordings, compiled = stepper.recordings, stepper.compiled
            used |= recordings is not None and bool(recordings.known)
            used |= compiled is not None and compiled.compiled
            for one in (recordings, compiled):
                why = why or ("" if one is None else one.refused)
        return {"name": str(self.speed) if used and not why else "eager", "why": why}

    def evaluation(
        self, data: Any, collate: Collate | None, batch: int | None, workers: int
    ) -> Evaluation:
        """Prepare to go through `data` once, in batches of `batch` samples."""
        if not has_index(data):
            raise DataError(
                f"{type(data).__name__} has no index. loop.evaluate needs a data set with __len__ "
                "and __getitem__; a list will do."
            )
        if batch is not None and batch < 1:
            raise PlanError(f"batch is {batch}; it must be 1 or more.")
        check_length(data, self.group)
        for model in self.state.models.values():
            model.merge_batch_norm()
        seed = self.computing.seed
        collator = Collator(collate, seed, may_drop=True)
        # A fork would copy a lock that the thread which writes a checkpoint holds, for ever locked.
        wait = self.record.checkpoints.finish
        reader = IndexedReader(data, collator, seed, self.group.device, workers, wait)
        chunk = batch or self.computing.plan.shard_size
        return Evaluation(self.computing, self.group, reader, len(data), chunk)


def start(settings: Settings, given: Given | None) -> Parts:
    """Join the other replicas and build the parts of a loop."""
    # A program that starts by itself imported torch as a whole; its optimizer would add a second.
    put_off_dynamo()
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
    if given is not None and given.progress is not None:
        progress = given.progress
    own = plan.shards_per_replica
    mine = range(world.rank * own, (world.rank + 1) * own)
    shards = Shards(own, group.device, first=mine.start, seed=settings.seed)
    computing = Computing(group, plan, shards, settings.seed, precision)
    checks = Checks(
        plan, group, settings.seed, settings.check_every, progress, exact=settings.exact
    )
    checks.may_change = names_in(settings.may_change)
    state = ProgramState()
    if computing.loss_scale is not None:
        state.keep({"loss scale": computing.loss_scale})
    for name in ("global_batch", "shards", "seed", "exact"):
        state.fact(name, getattr(settings, name))
    folder = _folder(settings, group)
    # A launcher that restarts its processes wants them to continue.
    resume = settings.resume or bool(restarts() and (folder / "run.json").exists())
    recipe = None if given is None else given.recipe
    program = {
        "path": str(Path(sys.argv[0]).resolve()),
        "arguments": sys.argv[1:],
        "loop": 1 if given is None else given.number + 1,
    }
    facts = {
        "recipe": recipe or _described(settings),
        "exact": settings.exact,
        **({"source": given.source} if recipe and given else {"program": program}),
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
        passed=given is not None and given.passed,
        loggers=settings.loggers,
    )
    record.claim()
    buffers = BufferWatch(progress, exact=settings.exact)
    steps = Steps(group, state, computing, record, checks, buffers)
    steps.accept_changes = settings.accept_changes
    if given is not None and given.detail is not None:
        steps.details = Details(folder / "details.json", given.detail, state.names)
    speed, why = _speed(settings, plan, group, progress)
    return Parts(
        group=group,
        progress=progress,
        state=state,
        computing=computing,
        carrier=None if group.alone else Carrier(group, settings.timeout, exact=settings.exact),
        checks=checks,
        buffers=buffers,
        record=record,
        steps=steps,
        speed=speed,
        why=why,
        noise=settings.noise,
    )


def _speed(settings: Settings, plan: Plan, group: Group, progress: Progress) -> tuple[Speed, str]:
    """Return how losses are computed, and why not as the program asked for."""
    why = ""
    if settings.speed is Speed.GRAPH and group.device.type != "cuda":
        why = "the replicas compute on the CPU"
    if settings.speed is Speed.COMPILE and plan.accumulation > MOST_COMPILED:
        why = f"not compiled, because a step has {plan.accumulation} parts"
    if why:
        progress.say(f"Speed: eager: {why}.")
    return (Speed.EAGER if why else Speed(settings.speed)), why


def _own_files() -> list[Path]:
    """Return the files of the program and of its modules, without installed packages."""
    main = (Path(sys.argv[0]) if sys.argv else Path()).resolve()
    if main.parent == Path(lockstep.__file__).parent:
        # python -m lockstep train FILE
        return []
    found, folder = {main} if main.suffix == ".py" else set(), f"{main.parent}{os.sep}"
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        # Thousands of modules: a Path of each would take longer than small programs train.
        if path and path.startswith(folder) and os.sep not in path[len(folder) :]:
            found.add(Path(path))
    return sorted(found)


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
