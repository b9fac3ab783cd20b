"""Goals of evaluations: which weights were the best, and when training stops early."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
from pathlib import Path
from typing import Any

from lockstep.console import Progress
from lockstep.engine.group import Group
from lockstep.engine.program.state import ProgramState
from lockstep.engine.run.atomic_write import replace_file
from lockstep.engine.run.checkpoint import Checkpoints
from lockstep.engine.run.run_folder import weights_file
from lockstep.errors import PlanError, RecipeError


class Goal:
    """The best value so far of one name that evaluations measure."""

    def __init__(self, name: str, largest: bool, patience: int | None = None) -> None:
        self.name, self.largest, self.patience = name, largest, patience
        self.value: float | None = None
        """The best value; None before the first evaluation."""
        self.step: int | None = None
        """The step after which it was measured."""
        self.since = 0
        """Evaluations since then."""

    def see(self, value: float, step: int) -> bool:
        """Take the next value; return whether it is the best. NaN never is."""
        better = math.isfinite(value) and (
            self.value is None or (value > self.value if self.largest else value < self.value)
        )
        if better:
            self.value, self.step, self.since = value, step, 0
        else:
            self.since += 1
        return better

    @property
    def is_lost(self) -> bool:
        """Whether there was no better value for too long."""
        return self.patience is not None and self.since >= self.patience

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold."""
        return {"value": self.value, "step": self.step, "since": self.since}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a saved state; an empty one is that of the start."""
        self.value, self.step = state.get("value"), state.get("step")
        self.since = state.get("since", 0)


class Goals:
    """All goals of a program. Every replica sees the same values, so all decide the same."""

    def __init__(
        self,
        group: Group,
        state: ProgramState,
        folder: Path,
        checkpoints: Checkpoints,
        progress: Progress,
    ) -> None:
        self.group, self.state, self.folder = group, state, folder
        self.checkpoints, self.progress = checkpoints, progress
        self.best: Goal | None = None
        self.stops: list[Goal] = []
        self.sha256 = ""
        """The hash of best.safetensors; only the first replica knows it."""
        self.warned = False

    def add_best(self, name: str, largest: bool | None) -> Goal:
        """Keep the weights with the best value of `name`."""
        if self.best is not None:
            raise RecipeError(
                f"loop.best({name!r}): the loop keeps the best {self.best.name} already, and there "
                "is one best.safetensors. Choose one of the two."
            )
        self.best = Goal(name, _direction(f"loop.best({name!r}", name, largest))
        return self.best

    def add_stop(self, name: str, patience: int, largest: bool | None) -> Goal:
        """Stop when `name` has not improved in `patience` evaluations."""
        call = f"loop.stop_early({name!r}, patience={patience}"
        if patience < 1:
            raise PlanError(f"{call}): patience counts evaluations. Give 1 or more.")
        self.stops.append(Goal(name, _direction(call, name, largest), patience))
        return self.stops[-1]

    def see(self, found: dict[str, float], step: int) -> bool:
        """Take the result of an evaluation; return whether the weights are the best so far."""
        for goal in self.stops:
            if goal.name in found and not goal.is_lost:
                goal.see(found[goal.name], step)
                if lost := self.lost:
                    self.progress.say(f"Stopping early after step {step}: {lost}.")
        best = self.best
        return best is not None and best.name in found and best.see(found[best.name], step)

    @property
    def lost(self) -> str:
        """Why training stops early; empty while it continues."""
        return next((_lost(goal) for goal in self.stops if goal.is_lost), "")

    def warn_of_other_names(self, measured: dict[str, float]) -> None:
        """Warn once if the first evaluations do not measure what a goal waits for."""
        goals = [*self.stops] if self.best is None else [self.best, *self.stops]
        odd = [goal.name for goal in goals if goal.name not in measured]
        if odd and measured and not self.warned:
            self.warned = True
            self.progress.warn(
                f"loop.best or loop.stop_early waits for {', '.join(odd)}, but evaluations have "
                f"measured only {', '.join(measured)}."
            )

    def described(self) -> dict[str, Any]:
        """Return what run.json says about the goals."""
        found: dict[str, Any] = {"stopped_early": self.lost} if self.lost else {}
        if (best := self.best) is not None and best.value is not None:
            facts = {"name": best.name, "value": best.value, "step": best.step}
            found["best"] = facts | {"largest": best.largest, "sha256": self.sha256}
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold."""
        best = {} if self.best is None else {f"best {self.best.name}": self.best.state()}
        return best | {f"stop {goal.name}": goal.state() for goal in self.stops}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint, with the best weights of that time."""
        for goal in self.stops:
            goal.load(state.get(f"stop {goal.name}", {}))
        if self.best is not None:
            self.best.load(state.get(f"best {self.best.name}", {}))
            if self.group.world.is_first:
                self._restore_file(self.best.step)

    def start_anew(self) -> None:
        """Drop the weights of a run that had no checkpoint yet; keep those seen since."""
        if self.best is not None:
            self._restore_file(None)
            if self.best.step is not None:
                self.write()

    def write(self) -> None:
        """Write the present weights as best.safetensors."""
        assert self.best is not None
        assert self.best.step is not None
        content = weights_file(self.state.module())
        self.sha256 = hashlib.sha256(content).hexdigest()
        # A run that is resumed from an earlier checkpoint needs the best weights of that time.
        replace_file(self._file(self.best.step), content)
        self._link(self.best.step)
        oldest = min(map(_step, self.checkpoints.files()), default=self.best.step + 1)
        before = [path for path in self._files() if _step(path) < oldest]
        for path in before[:-1]:
            path.unlink(missing_ok=True)

    def _restore_file(self, step: int | None) -> None:
        for path in self._files():
            if step is None or _step(path) > step:
                path.unlink(missing_ok=True)
        for path in self.checkpoints.folder.glob(".best-*"):
            path.unlink(missing_ok=True)
        if step is None:
            (self.folder / "best.safetensors").unlink(missing_ok=True)
        elif self._file(step).exists():
            self.sha256 = hashlib.sha256(self._file(step).read_bytes()).hexdigest()
            self._link(step)
        else:
            self.progress.warn(
                f"{self._file(step)}, the best weights so far, is gone: best.safetensors appears "
                "with the next better value."
            )

    def _link(self, step: int) -> None:
        """Let best.safetensors be the file of a step, without writing it twice if possible."""
        path = self.folder / "best.safetensors"
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            os.link(self._file(step), temporary)
        except OSError:
            # Some file systems know no links.
            shutil.copyfile(self._file(step), temporary)
        temporary.replace(path)

    def _file(self, step: int) -> Path:
        return self.checkpoints.folder / f"best-{step:08d}.safetensors"

    def _files(self) -> list[Path]:
        return sorted(self.checkpoints.folder.glob("best-*.safetensors"))


def _step(path: Path) -> int:
    return int(path.stem.partition("-")[2])


def _direction(call: str, name: str, largest: bool | None) -> bool:
    """Return whether larger values are better; refuse to guess."""
    if largest is None and not ("loss" in name or "error" in name):
        raise RecipeError(
            f"{call}): is a larger {name} better? Write {call}, largest=True), or largest=False."
        )
    return bool(largest)


def _lost(goal: Goal) -> str:
    since = "it was never a number" if goal.value is None else f"it was {goal.value:.6g}"
    place = "" if goal.step is None else f" after step {goal.step}"
    return f"{goal.name} has not improved in {goal.since} evaluations ({since}{place})"
