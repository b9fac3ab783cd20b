"""Run `lockstep convert --verify` on the cases in tests/cases/convert, and time the reading.

    python bench/convert.py --replicas 1,2 --save bench/results/convert.json
    python bench/convert.py tests/cases/convert/scripts/vae.py --replicas 1,2,4

    python bench/convert.py --manifest tests/cases/convert/fresh/a/manifest.json --half held

Each script runs in a scratch folder, on the CPU. The time of reading is that of a process which
converts 1,000 lines: the functions of one script, repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import save, spread

CASES = Path(__file__).parent.parent / "tests" / "cases" / "convert" / "scripts"
LINES = 1000
LONGEST = 600
"""The most seconds for one program."""
TORCHVISION = Path(sys.prefix, "torchvision", "site-packages")
"""Where `make` puts it, for scripts that import it."""
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(TORCHVISION)]),
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Case:
    """A program to convert."""

    name: str
    home: Path
    """The folder that is copied to a scratch folder, and where the setup is run."""
    entry: str
    working: str = "."
    """The folder to start in, relative to `home`."""
    arguments: tuple[str, ...] = ()
    setup: str = ""
    """A shell command that makes stand-in data."""
    convertible: bool | None = True
    """None if both answers are right."""
    copied: bool = False


def own_cases() -> list[Case]:
    """Return the scripts and notebooks of tests/cases/convert/scripts."""
    paths = sorted([*CASES.glob("*.py"), *CASES.glob("*.ipynb"), *CASES.glob("*/main.py")])
    return [Case(str(path.relative_to(CASES)), path.parent, path.name) for path in paths]


def listed(manifest: Path, half: str) -> list[Case]:
    """Return the programs of a list: all, those with odd numbers (open), or the others (held)."""
    found = []
    for one in json.loads(manifest.read_text()):
        odd = int(one["id"]) % 2 == 1
        if half != "all" and odd != (half == "open"):
            continue
        own = manifest.parent / "p" / one["id"]
        home = own if own.is_dir() else manifest.parent
        entry = Path(one["entry"])
        if home is not own and len(entry.parts) > 1:
            home, entry = manifest.parent / entry.parts[0], Path(*entry.parts[1:])
        found.append(
            Case(
                f"{manifest.parent.name}/{one['id']}",
                home,
                str(entry),
                one.get("cwd") or ".",
                tuple(str(argument) for argument in one.get("args") or ()),
                one.get("setup") or "",
                one["convertible"] if isinstance(one["convertible"], bool) else None,
                copied=True,
            )
        )
    return found


def proof(case: Case, replicas: str, steps: int, timeout: float) -> dict[str, Any]:
    """Convert and verify one program; return the verdict."""
    with tempfile.TemporaryDirectory() as folder:
        home = case.home
        if case.copied:
            home = Path(folder, "home")
            shutil.copytree(case.home, home, ignore=shutil.ignore_patterns("__pycache__"))
            subprocess.run(case.setup, shell=True, cwd=home, check=False, capture_output=True)
        entry = home / case.entry
        command = [sys.executable, "-m", "lockstep", "convert", str(entry), "--json"]
        command += ["--replicas", replicas, "--steps", str(steps), "--timeout", str(timeout)]
        command += ["--", *case.arguments] if case.arguments else []
        working = home / case.working if case.copied else Path(folder)
        began = time.perf_counter()
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                cwd=working,
                env=ENVIRONMENT,
                timeout=LONGEST,
            )
            out, error = done.stdout, done.stderr
        except subprocess.TimeoutExpired:
            out, error = "", f"not ready after {LONGEST} s"
        seconds = time.perf_counter() - began
    found = json.loads(out) if out.strip() else {"reason": error.strip()[-2000:]}
    verdict = found.get("verdict", {})
    reasons = [
        f"{c['replicas']}: {c['status']} {c['reason']}"
        + (f" [step {c['first']['step']}, {c['first']['what']}]" if c["first"] else "")
        for c in verdict.get("comparisons", [])
        if c["status"] != "equal"
    ]
    return {
        "script": case.name,
        "seconds": round(seconds, 1),
        "convertible": case.convertible,
        "state": found.get("state", "failed"),
        "proved": verdict.get("proved", False),
        "ranks": {c["replicas"]: c["status"] for c in verdict.get("comparisons", [])},
        "reasons": reasons,
        "failure": found.get("reason", "") or verdict.get("failure", ""),
        "log": (verdict.get("log", "").strip().splitlines() or [""])[-1],
        "doctor": [f["rule"] for f in verdict.get("findings", [])],
        "fake_data": verdict.get("fake_data", []),
    }


def said(one: dict[str, Any]) -> str:
    """Return the outcome in one line."""
    if one["proved"]:
        return "proven" if one["convertible"] is not False else "PROVEN, THOUGH IT SHOULD NOT BE"
    if one["state"] == "refused":
        mark = "refused" if one["convertible"] is not True else "REFUSED"
        return f"{mark}: {one['failure']}"
    if one["state"] == "already":
        return f"ALREADY: {one['failure']}"
    what = one["failure"] or "; ".join(one["reasons"]) or f"doctor: {one['doctor']}"
    return f"NOT PROVEN: {what}" + (f" | {one['log']}" if one["log"] else "")


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
    parser.add_argument("--manifest", type=Path, action="append", default=[])
    parser.add_argument("--half", choices=["all", "open", "held"], default="all")
    parser.add_argument("--only", help="names, with commas")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--replicas", default="1,2,4")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    cases = [Case(p.name, p.resolve().parent, p.name) for p in given.script]
    for manifest in given.manifest:
        cases += listed(manifest.resolve(), given.half)
    if given.only:
        cases = [case for case in cases if case.name in given.only.split(",")]
    read = None
    if not cases:
        cases = own_cases()
        read = reading(given.rounds)
        print(f"{read['lines']} lines: {spread(read['seconds'], unit=' s')}", flush=True)
    found = []

    def once(case: Case) -> None:
        one = proof(case, given.replicas, given.steps, given.timeout)
        found.append(one)
        print(f"{one['script']:24}{one['seconds']:7.1f} s  {said(one)[:400]}", flush=True)

    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(once, cases))
    found.sort(key=lambda one: one["script"])
    can = [one for one in found if one["convertible"] is True]
    cannot = [one for one in found if one["convertible"] is False]
    refused = sum(one["state"] == "refused" for one in cannot)
    print(f"{sum(one['proved'] for one in can)} of {len(can)} that can be converted are proven")
    print(f"{refused} of {len(cannot)} that must be refused are refused")
    command = shlex.join(["python", "bench/convert.py", *sys.argv[1:]])
    save(given.save, {"command": command, "reading": read, "scripts": found})


if __name__ == "__main__":
    main()
