"""Run a job: choose devices, start replicas on this machine or join those of a launcher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.console import Console, LiveProgress, Progress
from lockstep.errors import PlanError, ReplicaDied
from lockstep.processes.replicas import run_replicas
from lockstep.world import World, gpu_count, launched, restarts

if TYPE_CHECKING:
    from lockstep.engine.recipe.job import Job


def choose(device: str, replicas: int | None, share_gpu: bool = False) -> tuple[str, int]:
    """Return the kind of device and the number of replicas, as requested and available."""
    joined = launched()
    if joined is not None:
        size = joined[1]
        if replicas not in (None, size):
            raise PlanError(
                f"--replicas {replicas}, but the launcher started {size} processes. "
                "Leave --replicas out, or start as many."
            )
        replicas = size
    gpus = 0 if device == "cpu" else gpu_count()
    if device == "cuda" and gpus == 0:
        raise PlanError("--device cuda, but torch finds no GPU here. Use --device cpu.")
    kind = "cuda" if gpus else "cpu"
    if replicas is not None and replicas < 1:
        raise PlanError(f"--replicas {replicas}: give 1 or more, or leave it out.")
    replicas = replicas or max(1, gpus)
    if kind == "cuda" and joined is not None and joined[2] >= gpus and not share_gpu:
        raise PlanError(
            f"the launcher started process {joined[2]} on this machine, which has {gpus} GPU(s). "
            "Start one process per GPU, or use --device cpu."
        )
    if kind == "cuda" and joined is None and replicas > gpus and not share_gpu:
        raise PlanError(
            f"--replicas {replicas}, but this machine has {gpus} GPU{'s' if gpus > 1 else ''}. "
            f"Use --replicas {gpus}, or --device cpu, or (to test, not to be fast) --share-gpu."
        )
    return kind, replicas


def launch(
    job: Job, *, device: str, console: Console, max_restarts: int = 0, title: str | None = None
) -> dict[str, Any]:
    """Run `job` and return its summary; restart replicas that die up to `max_restarts` times."""
    if max_restarts < 0:
        raise PlanError(f"--max-restarts {max_restarts}: it must be 0 or more.")
    joined = launched()
    if joined is not None:
        rank, size, local = joined
        world = World(
            rank=rank,
            size=size,
            local_rank=local,
            device=place(device, local, share_gpu=job.share_gpu),
        )
        if max_restarts:
            raise PlanError("--max-restarts: give it to torchrun, which starts the replicas here.")
        if restarts() and (job.out / "run.json").exists():
            job = replace(job, resume=True)
        return replica(job, world, None, _progress(console, title or job.recipe.name, rank))

    def run(resume: bool) -> dict[str, Any]:
        again = replace(job, resume=job.resume or resume)
        summary: dict[str, Any] = run_replicas(job.replicas, _worker(again, device, console, title))
        return summary

    return restarted(run, job.out, console, max_restarts)


def restarted(
    run: Callable[[bool], dict[str, Any]], out: Path, console: Console, max_restarts: int
) -> dict[str, Any]:
    """Call `run(False)`; if a replica dies, call `run(True)`, up to `max_restarts` times."""
    resume = False
    while True:
        try:
            return run(resume)
        except ReplicaDied as error:
            if max_restarts == 0:
                raise ReplicaDied(f"{error}{_way_on(out)}") from None
            max_restarts -= 1
            console.warn(f"{error} Restarting from the last checkpoint; {max_restarts} more to go.")
            # A replica that died before it claimed its folder left nothing to resume.
            resume = (out / "run.json").exists()


def _way_on(out: Path) -> str:
    """Say how to continue after a replica died, if there is a checkpoint."""
    if not any((out / "checkpoints").glob("step-*.safetensors")):
        return ""
    return f"\nContinue from its last checkpoint with --resume --out {out}."


def _worker(
    job: Job, device: str, console: Console, title: str | None
) -> Callable[[int, str], dict[str, Any]]:
    def work(rank: int, store: str) -> dict[str, Any]:
        own = place(device, rank, share_gpu=job.share_gpu)
        world = World(rank=rank, size=job.replicas, local_rank=rank, device=own)
        return replica(job, world, store, _progress(console, title or job.recipe.name, rank))

    return work


def replica(job: Job, world: World, store: str | None, progress: Progress) -> dict[str, Any]:
    """Run one replica: join the group, train, leave the group."""
    from lockstep.engine.group import Group
    from lockstep.engine.loop import train

    if job.recipe.is_general:
        from lockstep.engine.program.recipe_loop import train_by_loop

        return train_by_loop(job, world, store, progress)
    group = Group(world, store=store, timeout=job.timeout, share_gpu=job.share_gpu)
    # Do not leave after an error: its traceback keeps DDP alive, and leaving may hang or abort.
    summary = train(job, group, progress)
    group.leave()
    return summary


def place(kind: str, local_rank: int, *, share_gpu: bool) -> str:
    """Return the device of a replica, as torch spells it."""
    return "cpu" if kind == "cpu" else f"cuda:{0 if share_gpu else local_rank}"


def _progress(console: Console, title: str, rank: int) -> Progress:
    return LiveProgress(console, title) if rank == 0 else Progress()
