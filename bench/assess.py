"""How long the assessment takes, and what it says of the reference and of the converter's program.

python bench/assess.py --rounds 3 --save bench/results/assess.json

Each round grades both, one after the other, in folders that `lockstep assess start` has just made.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from lockstep.assess.exam import EXAMS


def main() -> None:
    """Grade both, so many times."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", type=Path)
    asked = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {"reference": [], "converter": []}
    with tempfile.TemporaryDirectory() as home:
        for turn in range(asked.rounds):
            for name, grades in found.items():
                grades.append(graded(name, Path(home) / f"{name}{turn}"))
                print(name, json.dumps(grades[-1]), flush=True)
    for name, grades in found.items():
        seconds = sorted(grade["seconds"] for grade in grades)
        print(f"{name}: {median(seconds):.0f} s ({seconds[0]:.0f} to {seconds[-1]:.0f})")
    if asked.save:
        document = {
            "command": f"python bench/assess.py --rounds {asked.rounds}",
            "machine": {"cpus": os.cpu_count(), "machine": platform.machine()},
            "grades": found,
        }
        asked.save.write_text(json.dumps(document, indent=1) + "\n")


def graded(name: str, folder: Path) -> dict[str, Any]:
    """The task begun, the program put there, and the grade."""
    lockstep("assess", "start", str(folder), "--name", "Ada")
    program = folder / "train.py"
    if name == "reference":
        program.write_text(EXAMS["digits"].reference)
    else:
        lockstep("convert", "--write", str(program))
    began = time.perf_counter()
    grade = json.loads(lockstep("assess", "grade", str(folder), "--json").stdout)
    return {
        "seconds": time.perf_counter() - began,
        "passed": grade["passed"],
        "score": grade["score"],
        "gain": grade["gain"],
        "accuracy": grade["accuracy"],
        "speed": grade["checks"]["speed"],
    }


def lockstep(*arguments: str) -> subprocess.CompletedProcess[str]:
    """One command, with a home of its own for keys and history."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "lockstep", *arguments]
        env = os.environ | {"HOME": home, "NO_COLOR": "1"}
        ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1):
        sys.exit(ended.stderr)
    return ended


if __name__ == "__main__":
    main()
