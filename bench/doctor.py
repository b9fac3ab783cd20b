"""Time `lockstep doctor` on a script of 500 lines and on a folder of 1,000 files.

    python bench/doctor.py
    python bench/doctor.py --files 200 --rounds 5 --save bench/results/doctor.json

The files are copies of the test cases, each in a separate folder; the script is several cases in a
row. The script measures wall time and processor time, with the start of the process; on a busy
machine only processor time describes the doctor.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import save

CASES = Path(__file__).parent.parent / "tests" / "cases" / "doctor"
LINES = 500


def script(folder: Path) -> Path:
    """Write correct scripts into one file until it has enough lines."""
    lines: list[str] = []
    for case in sorted((CASES / "quiet").glob("good_*.py")):
        if len(lines) < LINES:
            lines += case.read_text().splitlines()
    path = folder / "script.py"
    path.write_text("\n".join(lines) + "\n")
    return path


def repository(folder: Path, files: int) -> Path:
    """Write copies of all cases."""
    cases = sorted([p for p in CASES.rglob("*.py") if p.parent.parent == CASES])
    root = folder / "repository"
    for number in range(files):
        place = root / f"part{number // 100}" / f"work{number}"
        place.mkdir(parents=True)
        case = cases[number % len(cases)]
        shutil.copy(case, place / case.name)
    return root


def measured(path: Path) -> tuple[float, float]:
    """Run the command once; return wall time and processor time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    command = [sys.executable, "-m", "lockstep", "doctor", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, check=False)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr.decode())
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure both, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5, help="runs of the script")
    parser.add_argument("--save", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        one = script(folder)
        many = repository(folder, given.files)
        measured(one)
        runs = [measured(one) for _ in range(given.rounds)]
        clock, processor = measured(many)
        lines = len(one.read_text().splitlines())
    found: dict[str, Any] = {
        "script": {
            "lines": lines,
            "seconds": statistics.median(run[0] for run in runs),
            "processor": statistics.median(run[1] for run in runs),
        },
        "folder": {"files": given.files, "seconds": clock, "processor": processor},
        "memory_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }
    for name, row in (("script", found["script"]), ("folder", found["folder"])):
        size = f"{row['lines']} lines" if name == "script" else f"{row['files']} files"
        print(f"{size}: {row['seconds']:.2f} s, {row['processor']:.2f} s of the processor")
    print(f"most memory: {found['memory_mb']:.0f} MB")
    save(given.save, found)


if __name__ == "__main__":
    main()
