"""What a run is told besides its recipe: how and where to compute it, never what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from lockstep.engine.recipe.plan import Plan, make_plan
from lockstep.engine.recipe.recipe import Recipe
from lockstep.errors import PlanError

Speed = Literal["auto", "eager", "compile", "graph"]
WIRES = ("fp32", "bf16", "powersgd")

MOST_AHEAD = 8
"""Data workers, each reading two parts ahead, where the batch grows: it is decided 24 ahead."""
MOST_MB, MOST_THREADS, MOST_SECONDS = 65_536, 1024, 604_800


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of a recipe."""

    recipe: Recipe
    out: Path
    """The run's folder."""
    replicas: int = 1
    exact: bool = False
    """Shard by shard, gradients added in one fixed tree: the same bits on any replica count."""
    micro_batch: int | None = None
    """Samples that go through the model together (fast mode); default: all of a replica's."""
    threads: int = 1
    """CPU threads of each replica; they change the last bits, so they are part of a comparison."""
    speed: Speed = "auto"
    """How steps are executed: `eager`, `compile`, `graph`, or the fastest of them."""
    workers: int = 2
    """Processes that read data for each replica, where the data do not live on the device."""
    resident: bool | None = None
    """Whether the data live on the device; default: if they fit."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; default: one after each epoch; 0: none."""
    keep: int = 3
    """Checkpoints that are kept."""
    resume: bool = False
    """Continue the run in the folder."""
    max_steps: int | None = None
    """Stop after so many steps; the schedule stays that of the whole run."""
    wire: str = "fp32"
    """What carries gradients in fast mode: fp32, bf16, or powersgd for thin links."""
    bucket_mb: float | None = None
    """Mebibytes of gradients exchanged at once; default: from the measured link."""
    noise: bool = False
    """Measure the gradient noise scale on the way."""
    timeline: bool = False
    """Measure the fifteen parts of a step."""
    timeout: float = 600.0
    """Seconds after which a replica gives up waiting for the others."""
    share_gpu: bool = False
    """Let all replicas use one GPU, over gloo: to test, not to be fast."""

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if self.speed not in get_args(Speed):
            raise PlanError(f"--speed {self.speed}: known are {', '.join(get_args(Speed))}.")
        if self.speed == "compile" and self.exact:
            raise PlanError(
                "--speed compile cannot be with --exact: a compiler may order sums differently on "
                "another machine or day. Use --speed graph, eager or auto."
            )
        if self.timeline and self.speed not in ("auto", "eager"):
            raise PlanError(
                f"--timeline looks into the step, which --speed {self.speed} makes one piece. "
                "Use --speed eager with it."
            )
        if self.noise and self.speed == "graph":
            raise PlanError(
                "--noise looks at every gradient, which --speed graph makes part of one piece. "
                "Use --speed auto, eager or compile with it."
            )
        grows = (self.recipe.grow_to or 0) > self.recipe.global_batch
        if self.noise and grows:
            raise PlanError(
                "--noise with --grow-to: a batch that grows is measured anyway. Leave out --noise."
            )
        if grows and self.workers > MOST_AHEAD:
            raise PlanError(
                f"--workers {self.workers} would read further ahead than the batch is decided: "
                f"with --grow-to use {MOST_AHEAD} at most."
            )
        for name in ("threads", "keep", "max_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise PlanError(f"--{name.replace('_', '-')} {value}: it must be 1 or more.")
        for name in ("workers", "checkpoint_every"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise PlanError(f"--{name.replace('_', '-')} {value}: it must be 0 or more.")
        if not 0 < self.timeout <= MOST_SECONDS:
            raise PlanError(
                f"--timeout {self.timeout:g}: it must be a number of seconds above 0, and "
                f"{MOST_SECONDS:,} (a week) at most."
            )
        if self.bucket_mb is not None and not 0 < self.bucket_mb <= MOST_MB:
            raise PlanError(
                f"--bucket-mb {self.bucket_mb:g}: it must be above 0, and {MOST_MB:,} at most."
            )
        if self.threads > MOST_THREADS:
            raise PlanError(f"--threads {self.threads}: {MOST_THREADS:,} at most.")
        if self.wire not in WIRES:
            raise PlanError(f"--wire {self.wire}: known are {', '.join(WIRES)}.")
        if self.wire != "fp32" and self.exact:
            raise PlanError(
                f"--wire {self.wire} cannot be with --exact: gradients are rounded when they "
                "leave a replica, so the bits would depend on how many there are. Leave one out."
            )
        plan = self.plan
        if self.recipe.batch_norm == "sync" and self.exact:
            raise PlanError(
                "--exact computes shard by shard, --batch-norm sync needs all shards at once. "
                "Use --batch-norm shard, which is as independent of the replicas."
            )
        if self.recipe.batch_norm == "sync" and plan.accumulation > 1:
            raise PlanError(
                f"--batch-norm sync needs the global batch in one pass, --micro-batch "
                f"{plan.micro_batch} makes {plan.accumulation}. Leave --micro-batch out, or use "
                "--batch-norm shard."
            )

    @property
    def plan(self) -> Plan:
        """How the global batch is cut."""
        return make_plan(
            global_batch=self.recipe.global_batch,
            shards=self.recipe.shards,
            replicas=self.replicas,
            micro_batch=self.micro_batch,
            exact=self.exact,
        )
