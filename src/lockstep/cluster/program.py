"""Run a program that contains a `lockstep.Loop`, on several replicas."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.cluster.launch import place, restarted
from lockstep.console import Console
from lockstep.engine.program.given import Given, give
from lockstep.errors import PlanError, RecipeError, RunError
from lockstep.processes.replicas import run_replicas
from lockstep.world import World, announce_rank, launched


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program to run, and what the command line decides for its loop."""

    path: Path
    arguments: Sequence[str] = ()
    """Arguments of the program itself."""
    out: Path
    resume: bool = False
    share_gpu: bool = False
    flags: dict[str, Any] = field(default_factory=dict)
    """Arguments of `Loop` that the command replaces."""
    detail: int | None = None
    """A step whose hashes are written in detail."""


def launch_program(
    program: Program, *, replicas: int, device: str, console: Console, max_restarts: int = 0
) -> dict[str, Any]:
    """Run a program on replicas; return the summary of its last loop, and their number."""
    if not program.path.is_file():
        raise RecipeError(f"{program.path} does not exist.")
    joined = launched()
    if joined is not None:
        if max_restarts:
            raise PlanError("--max-restarts: give it to torchrun, which starts the replicas here.")
        rank, size, local = joined
        own = place(device, local, share_gpu=program.share_gpu)
        return _run(program, World(rank=rank, size=size, local_rank=local, device=own), console)

    def work(resume: bool) -> Callable[[int, str], dict[str, Any]]:
        def replica(rank: int, store: str) -> dict[str, Any]:
            own = place(device, rank, share_gpu=program.share_gpu)
            world = World(rank=rank, size=replicas, local_rank=rank, device=own)
            return _run(program, world, console, store, resume=resume)

        return replica

    def run(resume: bool) -> dict[str, Any]:
        summary: dict[str, Any] = run_replicas(replicas, work(resume))
        return summary

    return restarted(run, program.out, console, max_restarts)


def _run(
    program: Program,
    world: World,
    console: Console,
    store: str | None = None,
    *,
    resume: bool = False,
) -> dict[str, Any]:
    """Run the program as one replica; return the summary of its last loop, and their number."""
    from lockstep.data.keyed import seed_generators
    from lockstep.engine.program.loop import finished
    from lockstep.keys import key

    give(
        Given(
            world=world,
            store=store,
            console=console,
            out=program.out,
            resume=program.resume or resume,
            share_gpu=program.share_gpu,
            flags=dict(program.flags),
            detail=program.detail,
        )
    )
    finished.clear()
    announce_rank(world)
    # What the program draws before it makes its Loop is the same on every replica, too.
    seed_generators(key(program.flags.get("seed", 0), "program"))
    sys.argv = [str(program.path), *program.arguments]
    sys.path.insert(0, str(program.path.parent.resolve()))
    try:
        runpy.run_path(str(program.path), run_name="__main__")
    except SystemExit as error:
        if error.code:
            raise RunError(f"{program.path} ended with exit code {error.code}.") from None
    finally:
        give(None)
    if not finished:
        raise RecipeError(
            f"{program.path} neither defines `recipe` nor trains with lockstep.Loop. Write: with "
            "lockstep.Loop(global_batch=...) as loop: ..."
        )
    return finished[-1] | {"loops": len(finished)}
