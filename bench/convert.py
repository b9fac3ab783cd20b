"""Run `lockstep convert --verify` on the cases in tests/cases/convert, and time the reading.

    python bench/convert.py --replicas 1,2 --save bench/results/convert.json
    python bench/convert.py tests/cases/convert/scripts/vae.py --replicas 1,2,4

Each script runs in a scratch folder, on the CPU. The time of reading is that of a process which
converts 1,000 lines: the functions of one script, repeated.
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

from measuring import save, spread

CASES = Path(__file__).parent.parent / "tests" / "cases" / "convert" / "scripts"
LINES = 1000
TORCHVISION = Path(sys.prefix, "torchvision", "site-packages")
"""Where `make` puts it, for scripts that import it."""
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(TORCHVISION)])
}


def scripts() -> list[Path]:
    """Return the scripts and notebooks to convert."""
    return sorted([*CASES.glob("*.py"), *CASES.glob("*.ipynb"), *CASES.glob("*/main.py")])


def proof(path: Path, replicas: str, steps: int) -> dict[str, Any]:
    """Convert and verify one script; return the verdict."""
    command = [sys.executable, "-m", "lockstep", "convert", str(path), "--json"]
    command += ["--replicas", replicas, "--steps", str(steps), "--timeout", "300"]
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=folder, env=ENVIRONMENT
        )
    found = json.loads(done.stdout) if done.stdout.strip() else {"reason": done.stderr.strip()}
    verdict = found.get("verdict", {})
    return {
        "script": str(path.relative_to(CASES)),
        "seconds": round(time.perf_counter() - began, 1),
        "proved": verdict.get("proved", False),
        "ranks": {c["replicas"]: c["status"] for c in verdict.get("comparisons", [])},
        "reasons": [c["reason"] for c in verdict.get("comparisons", []) if c["status"] != "equal"],
        "failure": found.get("reason", "") or verdict.get("failure", ""),
        "doctor": [f["rule"] for f in verdict.get("findings", [])],
        "fake_data": verdict.get("fake_data", []),
    }


def reading(rounds: int) -> dict[str, Any]:
    """Return the seconds to convert a long script."""
    text = (CASES / "mnist.py").read_text()
    head, tail = text.split("def main(", 1)
    functions = head[head.index("class ") :]
    number = 0
    while len(text.splitlines()) < LINES:
        number += 1
        head += functions.replace("class ", f"class N{number}").replace("def ", f"def f{number}_")
        text = head + "def main(" + tail
    times = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.py"
        path.write_text(text)
        for _ in range(rounds):
            began = time.perf_counter()
            command = [sys.executable, "-m", "lockstep", "convert", str(path), "--no-verify"]
            subprocess.run(command, capture_output=True, check=True)
            times.append(time.perf_counter() - began)
    return {"lines": len(text.splitlines()), "seconds": sorted(times)}


def main() -> None:
    """Time the reading, verify each script, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("script", nargs="*", type=Path)
    parser.add_argument("--replicas", default="1,2,4")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    read = reading(given.rounds)
    print(f"{read['lines']} lines: {spread(read['seconds'], unit=' s')}", flush=True)
    found = []
    for path in [p.resolve() for p in given.script] or scripts():
        one = proof(path, given.replicas, given.steps)
        found.append(one)
        said = "proven" if one["proved"] else f"NOT PROVEN: {one['failure'] or one['reasons']}"
        print(f"{one['script']:24}{one['seconds']:7.1f} s  {said}", flush=True)
    print(f"{sum(one['proved'] for one in found)} of {len(found)} proven")
    command = f"python bench/convert.py --replicas {given.replicas} --steps {given.steps}"
    save(given.save, {"command": command, "reading": read, "scripts": found})


if __name__ == "__main__":
    main()
