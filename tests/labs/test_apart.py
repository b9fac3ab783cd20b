"""What forks replicas, or runs a learner's program, runs in a process of its own."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

import pytest

from lockstep.errors import PlanError, RunError
from lockstep.labs.shared.apart import Late, Report, apart


@dataclass(frozen=True, kw_only=True)
class Told:
    pid: int
    given: list[int]


def fine(report: Report, given: list[int]) -> Told:
    report(0.5, "half")
    return Told(pid=os.getpid(), given=given)


def refuses(report: Report) -> Told:
    raise PlanError("three replicas cut no batch. Use 2 or 4.")


def breaks(report: Report) -> Told:
    report(0.1, "begun")
    raise ZeroDivisionError("of its own")


def killed(report: Report) -> Told:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def plain(report: Report, number: int) -> dict[str, int]:
    return {"number": number + 1}


def waits(report: Report) -> Told:
    report(0.0, str(os.getpid()))
    time.sleep(600)
    raise AssertionError


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process finds this file as a module, although it starts in another folder."""
    before = os.environ.get("PYTHONPATH", "")
    here = os.path.relpath(os.path.dirname(__file__))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, before]))


def call(name: str, heard: list[tuple[float, str]], **given: object) -> dict[str, object]:
    return apart(f"test_apart:{name}", lambda *said: heard.append(said), **given)


def test_the_result_and_the_progress_come_back():
    heard: list[tuple[float, str]] = []
    found = call("fine", heard, given=[1, 2])
    assert found["given"] == [1, 2]
    assert found["pid"] != os.getpid()
    assert heard == [(0.5, "half")]


def test_an_error_of_ours_comes_back_in_its_own_words():
    with pytest.raises(RunError, match=r"^three replicas cut no batch. Use 2 or 4.$"):
        call("refuses", [])


def test_any_other_error_shows_what_it_printed():
    with pytest.raises(RunError, match=r"(?s)breaks ended in the middle.*DivisionError: of its"):
        call("breaks", [])


def test_the_error_of_a_killed_process_gives_the_exit_code():
    with pytest.raises(RunError, match="exit code -9"):
        call("killed", [])


def test_plain_data_come_back_as_they_are():
    assert call("plain", [], number=4) == {"number": 5}


def test_a_process_is_ended_when_its_time_is_over():
    with pytest.raises(Late, match=r"^It took longer than 2 seconds, so the lab stopped it.$"):
        apart("test_apart:waits", limit=2)


def test_an_interrupted_call_leaves_no_process_behind():
    class Stop(Exception):
        pass

    def stops(share: float, what: str) -> None:
        nonlocal pid
        pid = int(what)
        raise Stop

    pid = 0
    with pytest.raises(Stop):
        apart("test_apart:waits", stops)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
