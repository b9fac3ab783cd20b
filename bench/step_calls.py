"""Count the Python calls that lockstep makes in one steady training step.

    python bench/step_calls.py --save bench/results/step_calls.json

Fast mode, one replica, the CPU, no timeline: the MLP of the bench, and the digits. A step lasts
from one return of the optimizer to the next. Most steps make the same number of calls, and that
number is reported. To measure another state of the source, put its `src` first on PYTHONPATH and
name it with --label.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import lockstep
from lockstep.bench.works import WORKS
from lockstep.console import Progress
from lockstep.engine.group import Group
from lockstep.engine.loop import train
from lockstep.engine.recipe.builtin import DIGITS
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.recipe import Recipe
from lockstep.world import World

SOURCE = str(Path(lockstep.__file__).parent)
STEPS = 40
RECIPES: dict[str, Callable[[], Recipe]] = {
    "mlp": lambda: WORKS["mlp"].recipe(WORKS["mlp"].samples(), 1, "fp32"),
    "digits": lambda: DIGITS,
}


class Found(NamedTuple):
    """The calls that were seen in one step."""

    calls: int
    files: int
    depth: int
    """The most frames of lockstep on the stack at once, counted from the training loop."""


class Calls:
    """A profile function that divides a run into steps."""

    def __init__(self) -> None:
        self.steps: list[tuple[Counter[tuple[str, str]], int]] = []
        self.calls: Counter[tuple[str, str]] = Counter()
        self.deepest = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Count a call of lockstep; end a step where the optimizer returns."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE):
            self.calls[code.co_filename[len(SOURCE) + 1 :], code.co_qualname] += 1
            self.deepest = max(self.deepest, _depth(frame))
        elif event == "return" and code.co_qualname == "SGD.step":
            self.steps.append((self.calls, self.deepest))
            self.calls, self.deepest = Counter(), 0


def _depth(frame: FrameType | None) -> int:
    """Frames between the training loop and this one, both included; torch's count too."""
    depth = 0
    while frame is not None and frame.f_code is not train.__code__:
        frame, depth = frame.f_back, depth + 1
    return depth + 1


def measure(recipe: Recipe) -> tuple[Found, Counter[tuple[str, str]]]:
    """Train a little; the steady step, and its calls by function."""
    watch = Calls()
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            recipe=recipe,
            out=Path(folder) / "run",
            max_steps=STEPS,
            speed="eager",
            checkpoint_every=0,
        )
        sys.setprofile(watch)
        try:
            train(job, Group(World()), Progress())
        finally:
            sys.setprofile(None)
    # The first steps set things up.
    late = watch.steps[STEPS // 2 :]
    usual, _ = Counter(sum(calls.values()) for calls, _ in late).most_common(1)[0]
    calls, depth = next((c, d) for c, d in late if sum(c.values()) == usual)
    return Found(usual, len({file for file, _ in calls}), depth), calls


def main() -> None:
    """Print the counts; with --save also keep them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--label", default="after")
    parser.add_argument("--calls", action="store_true", help="list every function")
    given = parser.parse_args()
    counts = {}
    for recipe, make in RECIPES.items():
        found, calls = measure(make())
        counts[recipe] = found._asdict()
        sys.stdout.write(f"{recipe}: {found.calls} calls in {found.files} files, ")
        sys.stdout.write(f"{found.depth} deep\n")
        for (file, name), number in sorted(calls.items(), key=lambda item: (-item[1], item[0])):
            if given.calls:
                sys.stdout.write(f"{number:4} {file}: {name}\n")
    if given.save:
        kept: dict[str, Any] = json.loads(given.save.read_text()) if given.save.exists() else {}
        kept["command"] = "python bench/step_calls.py --save bench/results/step_calls.json"
        kept[given.label] = counts
        given.save.write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    main()
