"""Compare the seconds to the end of the first step of lockstep and of a bare torchrun script.

    python bench/startup.py --rounds 5 --save bench/results/startup.json
    python bench/startup.py --rounds 5 --before OLD/src

Both train one linear layer on two replicas, alternating. The script also measures exact mode, a
second launch from the same process, and `lockstep --help`. With `--before`, the exact start of
another state of the source takes turns with them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from measuring import alternating, described, ratios, save, spread, trained

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
FLAGS = ["--model", "mlp((784, 10))", "--data", "synthetic(256, 8, (1, 28, 28), 10)"]
FLAGS += ["--augment", "none", "--global-batch", "16", "--shards", "2", "--max-steps", "1"]


def lockstep_command(*flags: str, source: Path | None = None) -> float:
    """Run `lockstep train --replicas 2`; return the seconds from the start of its process."""
    env = os.environ | ({} if source is None else {"PYTHONPATH": str(source.resolve())})
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "run")
        started = time.time()
        command = [BIN / "lockstep", "train", "digits", "--replicas", "2", *FLAGS, "--out", out]
        subprocess.run([*command, *flags], check=True, capture_output=True, env=env)
        return json.loads((Path(out) / "run.json").read_text())["first_step_at"] - started


def torchrun() -> float:
    """Run the bare script under torchrun; return the seconds to its first step."""
    started = time.time()
    command = [BIN / "torchrun", "--standalone", "--nproc-per-node", "2", HERE / "first_step.py"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(r"first step at ([\d.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    return float(found[1]) - started


def second_launch() -> float:
    """Launch again from this process; return the seconds to the first step."""
    from lockstep import data, models
    from lockstep.engine.recipe.builtin import DIGITS

    recipe = replace(
        DIGITS,
        model=partial(models.mlp, (784, 10)),
        data=partial(data.synthetic, 256, 8, (1, 28, 28), 10),
        augment=(),
        global_batch=16,
        shards=2,
    )
    started = time.time()
    summary, _ = trained(recipe, replicas=2, max_steps=1, checkpoint_every=None)
    return summary["first_step_at"] - started


def show_help() -> float:
    """Run `lockstep --help`; return its seconds."""
    started = time.time()
    subprocess.run([BIN / "lockstep", "--help"], check=True, capture_output=True)
    return time.time() - started


def main() -> None:
    """Alternate the sides, print their seconds and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    sides = {
        "lockstep train, first step": lockstep_command,
        "lockstep train --exact": partial(lockstep_command, "--exact"),
        "torchrun script, first step": torchrun,
        "lockstep --help": show_help,
    }
    if args.before is not None:
        sides["before, --exact"] = partial(lockstep_command, "--exact", source=args.before)
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(args.rounds):
        for name in alternating(sides, number):
            seconds[name].append(sides[name]())
    second_launch()
    seconds["second launch, first step"] = [second_launch() for _ in range(args.rounds)]
    ours, theirs = seconds["lockstep train, first step"], seconds["torchrun script, first step"]
    for name, values in seconds.items():
        print(f"{name:30} {spread(values, '.3f', ' s ', width=6)}")
    gain = ratios(theirs, ours)
    print(f"{'torchrun / lockstep':30} {spread(gain, unit='x', width=6)}")
    if args.before is not None:
        sooner = ratios(seconds["before, --exact"], seconds["lockstep train --exact"])
        print(f"{'before / lockstep --exact':30} {spread(sooner, unit='x', width=6)}")
    save(args.save, described(seconds=seconds, ratios=gain))


if __name__ == "__main__":
    main()
