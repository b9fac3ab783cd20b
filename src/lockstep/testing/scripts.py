"""Run a script on several numbers of replicas, as torchrun would, and compare."""

from __future__ import annotations

import shlex
from pathlib import Path
from tempfile import TemporaryDirectory

from lockstep.console import Progress
from lockstep.convert.verify.proof import Proof, findings
from lockstep.convert.verify.runs import WHOLE, Plan
from lockstep.convert.verify.verdict import EQUAL
from lockstep.doctor.findings import near
from lockstep.doctor.run import starts_itself
from lockstep.errors import UsageError
from lockstep.source.programs import programs
from lockstep.source.reading import read_script
from lockstep.source.training import Training
from lockstep.testing import functions, messages
from lockstep.testing.same import NotSame, SameOn

NUMBER = "{replicas}"
"""Stands for the number of replicas in the arguments of a script."""


def check(same: SameOn, script: Path, arguments: tuple[str, ...]) -> None:
    """Raise `NotSame` unless the script trains the same on all numbers of replicas."""
    __tracebackhide__ = True
    training = Training(programs([read_script(script)])[0])
    if any(True for _ in training.named("lockstep.Loop")):
        functions.check_program(same, script, arguments)
        return
    by_itself = starts_itself(training)
    numbered = any(NUMBER in one for one in arguments)
    if by_itself and not numbered and training.framework != "Lightning":
        raise UsageError(
            f"{script} starts its ranks itself. Let it take their number as an argument, and write "
            f'same_on(1, 2)("{script}", "--replicas", "{NUMBER}").'
        )
    framework = training.framework is not None
    with TemporaryDirectory(prefix="lockstep-testing-") as folder:
        plan = Plan(
            folder=Path(folder).resolve(),
            home=script.resolve().parent,
            name=script.name,
            working=Path.cwd(),
            arguments=arguments,
            steps=same.steps,
            timeout=same.timeout,
            early=("lockstep.testing.no_gpus",) * framework,
            inside=WHOLE,
            processes=_python if by_itself and numbered else _torchrun,
            stand_in_gpus=not framework,
            stand_in_data=False,
            losses=False,
            exact=bool(same.exact),
        )
        _compare(same, script.resolve(), plan, messages.named(script, arguments))


def _torchrun(replicas: int) -> int:
    return replicas


def _python(replicas: int) -> int:
    return 0


def _compare(same: SameOn, script: Path, plan: Plan, name: str) -> None:
    __tracebackhide__ = True
    proof = Proof(plan, script, Progress())
    if proof.original.failure or proof.nudged.failure:
        raise NotSame(messages.failed(name, 1, proof.nudged))
    if proof.original.still:
        steps = len(proof.original.steps)
        raise UsageError(f"{name} never changes its weights in {steps} steps: nothing to compare.")
    for number in same.others:
        run, comparison = proof.on(script, number)
        if run.failure:
            raise NotSame(messages.failed(name, number, run), comparison)
        # Chance is the same in the runs that are compared. The doctor lets the script draw itself.
        found = tuple(findings(plan, script, number, oracle=False))
        if comparison.status != EQUAL or any(one.certain for one in found):
            own = shlex.join(plan.arguments_on(number))
            then = f"lockstep doctor {near(script)} --run --replicas {number}"
            then += f" -- {own}" * bool(own)
            raise NotSame(messages.differs(name, comparison, found, then), comparison, found)
