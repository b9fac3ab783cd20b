"""The features of a loop around its steps: callbacks, goals, saved weights, and the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockstep.engine.program.batches import Control
from lockstep.engine.program.goals import Goal
from lockstep.engine.program.start import Parts
from lockstep.engine.run.run_folder import RunFolder
from lockstep.errors import FolderError, RecipeError

MOMENTS = ("epoch", "evaluate", "save", "end")
"""When functions of the program can be called."""


class Around(Control):
    """The part of a loop that is not needed to train, but to follow the training."""

    _parts: Parts

    def __init__(self) -> None:
        self._functions: dict[str, list[Callable[..., Any]]] = {name: [] for name in MOMENTS}
        self._parts.record.after_save = lambda: self._call("save")

    def on(self, moment: str, function: Callable[..., Any]) -> None:
        """Call `function(loop)` at a moment, on every replica.

        `epoch`: after the code of an epoch. `evaluate`: after each `loop.evaluate`, as
        `function(loop, values)`. `save`: after a checkpoint was made. `end`: after the weights and
        the summary were written.
        """
        if moment not in MOMENTS:
            raise RecipeError(f"loop.on({moment!r}, ...): known are {', '.join(MOMENTS)}.")
        self._functions[moment].append(function)

    def _call(self, moment: str, *values: Any) -> None:
        for function in self._functions[moment]:
            function(self, *values)
        if self._functions[moment]:
            # Functions may draw random numbers; what follows must not depend on them.
            self.before_body()

    def best(self, name: str, *, largest: bool | None = None) -> Goal:
        """Keep the weights with the best value of `name` in best.safetensors.

        `name` is one that `loop.evaluate` measures, with its prefix. Returns an object whose
        `value` and `step` are those of the best weights so far. `largest` may be left out for a
        loss or an error.
        """
        self._before_training("best")
        return self._parts.record.goals.add_best(name, largest)

    def stop_early(self, name: str, *, patience: int, largest: bool | None = None) -> Goal:
        """Stop training when `name` has not improved in `patience` evaluations."""
        self._before_training("stop_early")
        return self._parts.record.goals.add_stop(name, patience, largest)

    def load(self, folder: str | Path, *, best: bool = False) -> None:
        """Take over the weights of a finished run, or the best ones of any run.

        Call it after `loop.model`, then evaluate, or train on. A resumed run continues with the
        weights of its checkpoint.
        """
        folder = Path(folder)
        file = folder / ("best.safetensors" if best else "weights.safetensors")
        parts = self._parts
        # Wait for the first replica, which may still be writing the best weights of this run.
        parts.group.objects(None)
        if not all(parts.group.objects(file.is_file())):
            if not (folder / "run.json").is_file():
                raise FolderError(
                    f"loop.load: {folder} holds no run, it has no run.json. Give the folder of a "
                    "run, which all machines see."
                )
            status = RunFolder(folder).summary().get("status")
            way_on = (
                "Call loop.best(...) in its program, or leave out best=True."
                if best
                else "Resume it, or load its best weights so far with best=True."
            )
            raise FolderError(f"{folder} holds a run ({status}) without {file.name}. {way_on}")
        parts.state.load_weights(file)
        parts.record.summary["loaded"] = str(file)

    @property
    def logged(self) -> dict[str, float]:
        """What was logged last about training: `loss`, `learning_rate` and your own sums.

        It is there after a resume, too, when a variable of the loop's body may not be.
        """
        return dict(self._parts.record.last_line)

    def log(self, **values: float) -> None:
        """Write numbers of your own to metrics.jsonl and the loggers, at the present step."""
        record = self._parts.record
        place = {"kind": "own", "step": record.iterations, "epoch": record.epochs()}
        record.write(place | {"seconds": record.clock.total()} | values)

    def say(self, *values: object) -> None:
        """Print values as `print` does, but once, whatever the number of replicas."""
        self._parts.progress.say(" ".join(map(str, values)))

    def _before_training(self, what: str) -> None:
        raise NotImplementedError
