"""Time the assessment of the reference and of the converter's program, and print their grades.

python bench/assess.py --rounds 3 --save bench/results/assess.json

Each round grades both, one after the other, in new folders from `lockstep assess start`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lockstep.assess.exam import EXAMS
from measuring import described, save, spread


def main() -> None:
    """Grade both in every round, print and save."""
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
        print(f"{name}: {spread([grade['seconds'] for grade in grades], '.0f', ' s')}")
    save(asked.save, described(grades=found))


def graded(name: str, folder: Path) -> dict[str, Any]:
    """Start the task, put the program there, and return its grade."""
    lockstep("assess", "start", str(folder), "--name", "Ada")
    program = folder / "train.py"
    if name == "reference":
        program.write_text(EXAMS["digits"].reference)
    else:
        lockstep("convert", "--write", "--no-verify", str(program))
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
    """Run a command with a new home folder for keys and history."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "lockstep", *arguments]
        env = os.environ | {"HOME": home, "NO_COLOR": "1"}
        ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1):
        sys.exit(ended.stderr)
    return ended


if __name__ == "__main__":
    main()
