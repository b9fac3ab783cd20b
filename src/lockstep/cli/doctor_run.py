"""lockstep doctor --run: run the script too, and watch its ranks."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from lockstep.cli.doctor import show
from lockstep.console import Console, LiveProgress
from lockstep.errors import FolderError, UsageError

if TYPE_CHECKING:
    from lockstep.doctor import Checked, Rule
    from lockstep.doctor.run import Examination

_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
LAUNCHES = ("auto", "torchrun", "python")
MOST_RANKS = 64


def refuse(given: argparse.Namespace) -> None:
    """Raise an error if the flags of --run cannot work."""
    path = given.paths[0]
    if len(given.paths) != 1 or path.suffix != ".py" or path.is_dir():
        raise UsageError(
            "--run runs one script: name one .py file. Export a notebook first, with "
            "jupyter nbconvert --to script."
        )
    if find_spec("torch") is None:
        raise UsageError("--run needs torch: pip install 'lockstep[train]'.")
    if given.fix or given.unsafe_fixes:
        raise UsageError("--run and --fix cannot be combined: fix the script first, then run it.")
    if not 2 <= given.replicas <= MOST_RANKS:
        raise UsageError(f"--replicas {given.replicas}: give 2 to {MOST_RANKS}.")
    if given.steps < 0 or (given.batches is not None and given.batches < 1):
        raise UsageError("--steps must be 0 or more, and --batches 1 or more.")
    if not given.timeout > 0:
        raise UsageError(f"--timeout {given.timeout:g}: give a number of seconds above 0.")
    if given.launch not in LAUNCHES:
        raise UsageError(f"--launch {given.launch}: known are {', '.join(LAUNCHES)}.")
    if given.out is not None and given.out.exists() and not given.out.is_dir():
        raise FolderError(f"--out {given.out} is a file. Name a folder.")


def examined(
    given: argparse.Namespace, checked: Checked, rules: list[Rule], console: Console, output: str
) -> int:
    """Run the script, print the findings, and return the exit code."""
    from lockstep.doctor.facts import facts
    from lockstep.doctor.output import document
    from lockstep.doctor.run import acquitted, examine

    progress = LiveProgress(console, "steps")
    with TemporaryDirectory(prefix="lockstep-doctor-") as folder:
        what = _examination(given)
        progress.begin(given.steps or 1, 0, 1)
        try:
            result = examine(what, Path(folder), rules, progress)
        finally:
            progress.end()
        found = facts(result)
        shown = {finding.rule.code for finding in result.findings}
        only_read = [f for f in checked.findings if f.rule.code not in shown]
        not_refuted = [f for f in only_read if not acquitted(f, result.trace)]
        checked.findings = [*result.findings, *not_refuted]
        if given.out is not None:
            _write(given.out, document(checked) | {"run": found}, Path(folder), given.paths[0])
    show(checked, console, output, found)
    if len(result.trace.ranks) < 2:
        console.error(_alone(found, given.replicas))
        return 2
    ends = {found["ended"], found["resumed"] or "finished"}
    return 1 if checked.findings or ends != {"finished"} else 0


def _alone(found: dict[str, Any], replicas: int) -> str:
    if found["ended"] == "crashed":
        missing = _MISSING.search("\n".join(found["last_words"]))
        if missing is not None:
            return (
                f"the script needs {missing[1]}, which is not installed here. Install it, or add "
                "--stand-in-data, which replaces some libraries."
            )
        return "the script failed before its ranks met. Give it its arguments after --."
    if found["ended"] == "hung":
        return "the script hung before its ranks met; the lines above show where."
    return (
        f"the script did not train on {replicas} ranks: it ended without a process group of "
        "several. If it starts its ranks by itself, add --launch python; if it takes their number "
        "as an argument, give it after --."
    )


def _examination(given: argparse.Namespace) -> Examination:
    from lockstep.doctor.run import Examination, starts_itself
    from lockstep.source.programs import programs
    from lockstep.source.reading import read_script
    from lockstep.source.training import Training
    from lockstep.world import gpus_here

    own = given.own or []
    training = Training(programs([read_script(given.paths[0])], several_ranks=True)[0])
    by_python = given.launch == "python" or (given.launch == "auto" and starts_itself(training))
    # A framework asks the machine which devices it has, so nothing stands in for them.
    enough = gpus_here() >= given.replicas
    stands_in = training.framework is None and not enough
    return Examination(
        script=given.paths[0],
        arguments=tuple(own),
        replicas=given.replicas,
        steps=given.steps or None,
        batches=given.batches,
        timeout=given.timeout,
        starts_itself=by_python,
        resume=None if given.resume is None else (*own, *shlex.split(given.resume)),
        gpus=given.replicas if stands_in else None,
        real_gpus=enough,
        oracle=not given.no_oracle,
        stand_in_data=given.stand_in_data,
    )


def _write(out: Path, document: dict[str, Any], folder: Path, script: Path) -> None:
    """Write the report and copy the logs of the ranks."""
    from lockstep.report.doctor import write_doctor

    out.mkdir(parents=True, exist_ok=True)
    (out / "report.json").write_text(json.dumps(document, indent=2) + "\n")
    write_doctor(out / "report.html", document, script.name)
    for log in sorted(folder.glob("*/rank-*.log")):
        shutil.copyfile(log, out / f"{log.parent.name}-{log.name}")
