"""Seconds until the first training step has ended, lockstep and a bare torchrun script alternating.

    python bench/startup.py --rounds 5 --save bench/results/startup.json

Both train one linear layer on two replicas. Also: a second launch from the same process, and
`lockstep --help`.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
FLAGS = ["--model", "mlp((784, 10))", "--data", "synthetic(256, 8, (1, 28, 28), 10)"]
FLAGS += ["--augment", "none", "--global-batch", "16", "--shards", "2", "--max-steps", "1"]


def lockstep_command() -> float:
    """`lockstep train --replicas 2`, from the start of its process."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "run")
        started = time.time()
        command = [BIN / "lockstep", "train", "digits", "--replicas", "2", *FLAGS, "--out", out]
        subprocess.run(command, check=True, capture_output=True)
        return json.loads((Path(out) / "run.json").read_text())["first_step_at"] - started


def torchrun() -> float:
    """The bare script under torchrun."""
    started = time.time()
    command = [BIN / "torchrun", "--standalone", "--nproc-per-node", "2", HERE / "first_step.py"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(r"first step at ([\d.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    return float(found[1]) - started


def second_launch() -> float:
    """Another launch from a process that has launched before."""
    from lockstep import data, models
    from lockstep.cluster.launch import launch
    from lockstep.console import Console
    from lockstep.engine.recipe.builtin import DIGITS
    from lockstep.engine.recipe.job import Job

    recipe = replace(
        DIGITS,
        model=partial(models.mlp, (784, 10)),
        data=partial(data.synthetic, 256, 8, (1, 28, 28), 10),
        augment=(),
        global_batch=16,
        shards=2,
    )
    with tempfile.TemporaryDirectory() as folder:
        job = Job(recipe=recipe, out=Path(folder) / "run", replicas=2, max_steps=1)
        started = time.time()
        summary = launch(job, device="cpu", console=Console(as_json=True))
        return summary["first_step_at"] - started


def show_help() -> float:
    """`lockstep --help`."""
    started = time.time()
    subprocess.run([BIN / "lockstep", "--help"], check=True, capture_output=True)
    return time.time() - started


def main() -> None:
    """Alternate the sides."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    sides = {
        "lockstep train, first step": lockstep_command,
        "torchrun script, first step": torchrun,
        "lockstep --help": show_help,
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(args.rounds):
        for name in list(sides) if number % 2 == 0 else list(reversed(sides)):
            seconds[name].append(sides[name]())
    second_launch()
    seconds["second launch, first step"] = [second_launch() for _ in range(args.rounds)]
    ours, theirs = seconds["lockstep train, first step"], seconds["torchrun script, first step"]
    for name, values in seconds.items():
        print(f"{name:30} {statistics.median(values):6.3f} s  "
              f"({min(values):.3f} - {max(values):.3f})")  # fmt: skip
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    print(f"{'torchrun / lockstep':30} {statistics.median(ratios):6.2f}x "
          f"({min(ratios):.2f} - {max(ratios):.2f})")  # fmt: skip
    if args.save:
        from lockstep.bench import machine

        document = {"machine": machine.facts(), "command": " ".join(sys.argv), "seconds": seconds}
        args.save.write_text(json.dumps(document | {"ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
