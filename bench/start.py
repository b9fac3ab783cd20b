"""CPU time of `lockstep doctor --run` and `lockstep convert --verify`: two versions in turns.

    python bench/start.py --before OLD/bin/lockstep --after NEW/bin/lockstep "SCRIPT ARGUMENTS" ...

Every command runs `--rounds` times with each version, alternating. The figure is the CPU time of
the command and of all processes that it started, user and system, in seconds: other programs on
the machine change it less than they change the time on the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import statistics
import subprocess
import tempfile
import time
from pathlib import Path


def run(command: list[str]) -> dict[str, float]:
    """Run a command in an empty folder; its CPU seconds, seconds, and exit code."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu": cpu, "seconds": time.monotonic() - start, "code": done.returncode}


def command(lockstep: str, program: str) -> list[str]:
    """Watch a script that is distributed; convert any other one, and prove it."""
    script, *arguments = shlex.split(program)
    path = str(Path(script).resolve())
    rest = ["--", *arguments] if arguments else []
    if "init_process_group" in Path(script).read_text():
        return [lockstep, "doctor", path, "--run", "--stand-in-data", *rest]
    return [lockstep, "convert", path, "--verify", "--replicas", "1,2", "--out", "new.py", *rest]


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", required=True)
    parser.add_argument("--after", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("programs", nargs="+")
    given = parser.parse_args()
    found = {}
    for program in given.programs:
        sides: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
        for _ in range(given.rounds):
            for side, runs in sides.items():
                runs.append(run(command(getattr(given, side), program)))
        pairs = zip(*sides.values(), strict=True)
        ratios = sorted(before["cpu"] / after["cpu"] for before, after in pairs)
        found["/".join(Path(shlex.split(program)[0]).parts[-2:])] = {
            "ratio": statistics.median(ratios),
            "range": [ratios[0], ratios[-1]],
            **{f"{side}_cpu": [round(r["cpu"], 2) for r in runs] for side, runs in sides.items()},
            **{
                f"{side}_seconds": [round(r["seconds"]) for r in runs]
                for side, runs in sides.items()
            },
            "codes": [[r["code"] for r in runs] for runs in sides.values()],
        }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
