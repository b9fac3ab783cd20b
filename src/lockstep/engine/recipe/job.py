"""How and where to run a recipe. A job never changes what the recipe computes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from lockstep.engine.exchange.compression import COMPRESSIONS, Compression
from lockstep.engine.recipe.plan import CHECK_EVERY, Plan, make_plan
from lockstep.engine.recipe.recipe import BatchNorm, Recipe
from lockstep.engine.recipe.source import Source
from lockstep.engine.run.open_loggers import Chosen, checked
from lockstep.errors import PlanError

WIRES = tuple(COMPRESSIONS)
MOST_AHEAD = 8
"""The most data workers for a batch that grows: each reads two parts ahead, and the batch is
decided 24 parts ahead."""
MOST_MB, MOST_THREADS, MOST_SECONDS = 65_536, 1024, 604_800


class Speed(StrEnum):
    """How steps are executed."""

    AUTO = "auto"
    """The fastest of the others."""
    EAGER = "eager"
    COMPILE = "compile"
    GRAPH = "graph"


SpeedName = Speed | Literal["auto", "eager", "compile", "graph"]


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
    """Samples that go through the model together (fast mode); default: all that a replica has."""
    threads: int = 1
    """CPU threads of each replica. They change the last bits: compare runs of equal threads."""
    speed: SpeedName = Speed.AUTO
    """How steps are executed: `eager`, `compile`, `graph`, or the fastest of them (`auto`)."""
    workers: int = 2
    """Processes that read data for each replica, if the data do not live on the device."""
    resident: bool | None = None
    """Whether the data live on the device; default: if they fit."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; default: one after each epoch; 0: none."""
    keep: int = 3
    """How many checkpoints to keep."""
    resume: bool = False
    """Continue the run in the folder."""
    max_steps: int | None = None
    """Stop after this many steps; the schedule stays that of the whole run."""
    wire: str = "fp32"
    """How gradients travel in fast mode: fp32, bf16, or powersgd for slow links."""
    bucket_mb: float | None = None
    """Mebibytes of gradients exchanged at once; default: from the measured link."""
    check_every: int = CHECK_EVERY
    """Steps, on average, between two checks that compute a shard again; 0: never."""
    noise: bool = False
    """Measure the gradient noise scale while training."""
    timeline: bool = False
    """Measure the fifteen parts of a step."""
    timeout: float = 600.0
    """How long a replica waits for the others before it gives up, in seconds."""
    share_gpu: bool = False
    """Let all replicas use one GPU, over gloo. This is for tests: it is slow."""
    loggers: Chosen = ()
    """Where the lines of metrics.jsonl go besides: names, or functions of a line."""
    source: Source | None = None
    """How the recipe was named, so that an audit can find it again."""
    detail: int | None = None
    """A step whose hashes are written to details.json, for an audit."""

    def __post_init__(self) -> None:
        """Refuse options that contradict each other."""
        if self.speed not in tuple(Speed):
            raise PlanError(f"--speed {self.speed}: known are {', '.join(Speed)}.")
        object.__setattr__(self, "speed", Speed(self.speed))
        if self.speed is Speed.COMPILE and self.exact:
            raise PlanError(
                "--speed compile does not work with --exact: a compiler may order sums differently "
                "on another machine or day. Use --speed graph, eager or auto."
            )
        if self.timeline and self.speed not in (Speed.AUTO, Speed.EAGER):
            raise PlanError(
                f"--timeline looks into the step, which --speed {self.speed} makes one piece. "
                "Use --speed eager with it."
            )
        if self.noise and self.speed is Speed.GRAPH:
            raise PlanError(
                "--noise looks at every gradient, which --speed graph makes part of one piece. "
                "Use --speed auto, eager or compile with it."
            )
        grows = self.recipe.grows
        if self.noise and grows:
            raise PlanError(
                "--noise with --grow-to: a batch that grows is measured anyway. Leave out --noise."
            )
        if grows and self.workers > MOST_AHEAD:
            raise PlanError(
                f"--workers {self.workers} would read further ahead than the batch is decided: "
                f"use up to {MOST_AHEAD} workers with --grow-to."
            )
        for name in ("threads", "keep", "max_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise PlanError(f"--{name.replace('_', '-')} {value}: it must be 1 or more.")
        for name in ("workers", "checkpoint_every", "check_every"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise PlanError(f"--{name.replace('_', '-')} {value}: it must be 0 or more.")
        if not 0 < self.timeout <= MOST_SECONDS:
            raise PlanError(
                f"--timeout {self.timeout:g}: it must be a number of seconds above 0 and up to "
                f"{MOST_SECONDS:,} (a week)."
            )
        if self.bucket_mb is not None and not 0 < self.bucket_mb <= MOST_MB:
            raise PlanError(
                f"--bucket-mb {self.bucket_mb:g}: it must be above 0 and up to {MOST_MB:,}."
            )
        if self.threads > MOST_THREADS:
            raise PlanError(f"--threads {self.threads}: give 1 to {MOST_THREADS:,}.")
        if self.wire not in COMPRESSIONS:
            raise PlanError(f"--wire {self.wire}: known are {', '.join(WIRES)}.")
        if self.compression.changes_gradients and self.exact:
            raise PlanError(
                f"--wire {self.wire} does not work with --exact: gradients are rounded when they "
                "leave a replica, so the bits would depend on how many there are. Leave one out."
            )
        object.__setattr__(self, "loggers", checked(self.loggers))
        self._refuse_if_general()
        plan = self.plan
        synced = self.recipe.batch_norm is BatchNorm.SYNC
        if synced and self.exact:
            raise PlanError(
                "--exact computes shard by shard, --batch-norm sync needs all shards at once. "
                "Use --batch-norm shard, which does not depend on the replicas either."
            )
        if synced and plan.accumulation > 1:
            raise PlanError(
                f"--batch-norm sync needs the global batch in one pass, --micro-batch "
                f"{plan.micro_batch} makes {plan.accumulation}. Leave --micro-batch out, or use "
                "--batch-norm shard."
            )

    def _refuse_if_general(self) -> None:
        """Refuse flags that only recorded steps know."""
        if not self.recipe.is_general:
            return
        known = {"wire": "fp32", "bucket_mb": None, "timeline": False}
        odd = [name for name, value in known.items() if getattr(self, name) != value]
        if self.resident is not None:
            odd.append("resident")
        if odd:
            raise PlanError(
                f"--{odd[0].replace('_', '-')} does not work with {self.recipe.why_general}: "
                "such a recipe trains by a Loop, which adds gradients as they are and times "
                "no parts of a step. Leave the flag out."
            )

    @property
    def compression(self) -> Compression:
        """How gradients are made smaller before they travel."""
        return COMPRESSIONS[self.wire]

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
