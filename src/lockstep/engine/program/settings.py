"""The settings of a loop: arguments of the program, and flags of the command that replace them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal, TypedDict

from lockstep.engine.program.given import Given
from lockstep.engine.recipe.job import Speed, SpeedName
from lockstep.engine.recipe.plan import CHECK_EVERY, Plan, make_plan
from lockstep.engine.recipe.recipe import Precision, PrecisionName, names_in
from lockstep.engine.run.open_loggers import Chosen, checked
from lockstep.errors import PlanError


class Options(TypedDict, total=False):
    """Arguments of `Loop` that seldom need to change."""

    precision: PrecisionName
    """`fp32`, `tf32`, `bf16` or `fp16` (autocast around the loss function; `fp16` scales the
    loss), or `pure-bf16` (weights and gradients in bfloat16)."""
    micro_batch: int | None
    """Samples that go through the loss together (fast mode); default: all of a replica's."""
    device: Literal["auto", "cpu", "cuda"]
    """`auto` takes the GPU of this process if there is one."""
    workers: int
    """Processes that read data ahead, for each replica; default: 0."""
    threads: int
    """CPU threads of each replica; default: 1. They change the last bits."""
    checkpoint_every: int | None
    """Steps between checkpoints; default: one after each epoch; 0: none."""
    keep: int
    """The number of checkpoints to keep."""
    log_every: int
    """Steps between lines of metrics.jsonl, besides one after each epoch."""
    max_steps: int | None
    """Stop after this many batches."""
    check_every: int
    """Average number of batches between two checks that compute a shard again; 0: never.

    Fast mode checks one of four times as many, because its checks compute more."""
    may_change: str | Sequence[str]
    """Variables that the loss may change in exact mode, because nothing but a log depends on them:
    names as a message gives them, such as `Net.calls`."""
    speed: Literal["eager", "compile", "graph"] | Speed
    """`compile` compiles the loss (fast mode). `graph` records it as a CUDA graph: then it must
    depend on its batch and on tensors alone."""
    noise: bool
    """Measure the gradient noise scale while training."""
    accept_changes: bool
    """Resume even if the program has changed since the checkpoint."""
    timeout: float
    """Seconds after which a replica stops waiting for the others."""
    quiet: bool
    """Print nothing."""
    loggers: Chosen
    """`csv`, `tensorboard`, `mlflow`, `wandb`, or functions that get each line of metrics.jsonl."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a loop; `Options` explains the fields after `resume`."""

    global_batch: int
    shards: int = 4
    seed: int = 0
    exact: bool = False
    out: Path | None = None
    name: str = ""
    resume: bool = False
    precision: PrecisionName = Precision.FP32
    micro_batch: int | None = None
    device: str = "auto"
    workers: int = 0
    threads: int = 1
    checkpoint_every: int | None = None
    keep: int = 3
    log_every: int = 50
    max_steps: int | None = None
    check_every: int = CHECK_EVERY
    may_change: str | Sequence[str] = ()
    speed: SpeedName = Speed.EAGER
    noise: bool = False
    accept_changes: bool = False
    timeout: float = 600.0
    quiet: bool = False
    loggers: Chosen = ()

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        if self.precision not in tuple(Precision):
            raise PlanError(f"precision is {self.precision!r}; known: {', '.join(Precision)}.")
        if self.speed not in (Speed.EAGER, Speed.COMPILE, Speed.GRAPH):
            raise PlanError(
                f"speed is {self.speed!r}; a Loop knows 'eager', 'compile' to compile its losses, "
                "and 'graph' to record them."
            )
        object.__setattr__(self, "speed", Speed(self.speed))
        if self.speed is Speed.COMPILE and self.exact:
            raise PlanError(
                "speed='compile' does not work with exact mode: a compiler may order sums "
                "differently on another machine or day. Use speed='graph' or 'eager'."
            )
        if self.device not in ("auto", "cpu", "cuda"):
            raise PlanError(f"device is {self.device!r}; known: auto, cpu, cuda.")
        for name in ("threads", "keep", "max_steps", "log_every", "micro_batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise PlanError(f"{name} is {value}; it must be 1 or more.")
        for name in ("workers", "checkpoint_every", "check_every"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise PlanError(f"{name} is {value}; it must be 0 or more.")
        if self.resume and self.out is None:
            raise PlanError("resume needs out, the folder of the run to continue.")
        object.__setattr__(self, "loggers", checked(self.loggers))
        object.__setattr__(self, "may_change", names_in(self.may_change))
        if not self.name:
            object.__setattr__(self, "name", _program_name())
        object.__setattr__(self, "precision", Precision(self.precision))
        object.__setattr__(self, "out", None if self.out is None else Path(self.out))

    def replaced_by(self, given: Given | None) -> Settings:
        """Return the settings with the flags of `lockstep train` in place of the arguments."""
        if given is None:
            return self
        known = {field.name for field in fields(self)}
        flags = {name: value for name, value in given.flags.items() if name in known}
        out = given.out or self.out
        return replace(self, **flags, out=out, resume=given.resume or self.resume)

    def plan(self, replicas: int) -> Plan:
        """Return how a global batch is cut for this number of replicas."""
        return make_plan(
            global_batch=self.global_batch,
            shards=self.shards,
            replicas=replicas,
            micro_batch=self.micro_batch,
            exact=self.exact,
        )


def _program_name() -> str:
    path = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path("program")
    return path.stem if path.suffix == ".py" else "program"
