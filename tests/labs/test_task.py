"""A learner's text runs apart from the page: whatever it does ends in words."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lockstep.labs.lab1_descent.tasks import BATCHES, CONVERGENCE
from lockstep.labs.shared.task import by

JUDGE = by("lockstep.labs.lab1_descent.tasks:check_batches", seconds=20)


@pytest.mark.parametrize("task", [CONVERGENCE, BATCHES], ids=lambda task: task.name)
def test_the_answer_passes_and_the_starter_does_not(task) -> None:
    assert task.judge(task.answer) == []
    assert task.judge(task.starter) != []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[order[i : i + size] for i in range(0, len(order) - size + 1, size)]", "drops the last"),
        ("[order[i : i + size] for i in range(0, len(order), size - 1)]", "some appear twice"),
        (
            "[sorted(order)[i : i + size] for i in range(0, len(order), size)]",
            "follow the given order",
        ),
        ("[order[i::3] for i in range(3)]", "follow the given order"),
        ("[order[:5], order[5:]]", "batches of 4, 4 and 2; yours are [5, 5]"),
        ("None", "returns nothing"),
        ("[order[1:]]", "samples [7] are in no batch"),
    ],
)
def test_each_wrong_way_to_cut_batches_is_told_apart(body: str, message: str) -> None:
    (said,) = JUDGE(f"def batches(order, size):\n    return {body}\n")
    assert message in said


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("abs(losses[-1] - losses[-2]) < 0.001", "divide the change by the previous loss"),
        ("(losses[-2] - losses[-1]) / max(losses[-2], 1e-9) < 0.001", "without its sign"),
        ("abs(losses[-1] - losses[-2]) <= 0.1 * losses[-2]", "0.1% is 0.001"),
        ("abs(losses[-1] - losses[0]) <= 0.001 * losses[0]", "does not compare the last two"),
        ("not abs(losses[-1] - losses[-2]) > 0.001 * losses[-2]", "not a number (nan)"),
        ("abs(losses[-1] - losses[-2]) / losses[-2] < 0.001", "ZeroDivisionError"),
    ],
)
def test_each_wrong_convergence_test_is_told_apart(body: str, message: str) -> None:
    guard = "if len(losses) < 2:\n        return False"
    text = f"def converged(losses):\n    {guard}\n    return {body}\n"
    assert any(message in one for one in CONVERGENCE.judge(text)), CONVERGENCE.judge(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def batches(order, size)\n    return []", "Line 1 is not Python"),
        ("x = 1\ny = 1 / 0", "Line 2 raises ZeroDivisionError: division by zero."),
        ("def cut(order, size):\n    return []", "There is no function called batches."),
        ("import sys\nsys.exit(3)", "Line 2 raises SystemExit: 3."),
        ("import os\nos._exit(3)", "ended in the middle, with exit code 3"),
        ("def batches(order):\n    return []", "TypeError"),
        ("def batches(order, size):\n    return order[", "is not Python"),
    ],
)
def test_a_text_that_cannot_run_is_refused_with_its_line(text: str, message: str) -> None:
    (said,) = JUDGE(text)
    assert message in said


def test_a_text_that_never_ends_is_ended_with_all_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    text = f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(note)!r}, "w").write(str(child.pid))
while True:
    pass
"""
    (said,) = by("lockstep.labs.lab1_descent.tasks:check_batches", seconds=4)(text)
    assert "without an end" in said
    assert not alive(int(note.read_text()))


def test_printed_text_is_shown_and_a_flood_is_cut() -> None:
    *wrong, printed = JUDGE("print('here')\ndef batches(order, size):\n    return None\n")
    assert wrong
    assert printed == "It printed:\nhere"
    *_, flood = JUDGE("for _ in range(100_000): print('more and more')\nbatches = None\n")
    assert len(flood) < 5000


def test_printed_text_cannot_pass_for_the_verdict() -> None:
    assert JUDGE("print('[]')\nbatches = None\n") != []


def alive(pid: int) -> bool:
    for _ in range(100):  # a killed process is gone once its parent has noticed
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        if Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z":
            return False
        time.sleep(0.05)
    return True
