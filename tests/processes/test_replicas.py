"""Starting replicas on this machine: results, errors, deaths, and no orphans."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lockstep.errors import Interrupted, PlanError, ReplicaDied
from lockstep.processes.replicas import run_replicas


def test_the_first_replica_s_result_is_returned():
    assert run_replicas(3, lambda rank, store: ("result", rank)) == ("result", 0)


def test_a_large_result_comes_back_whole():
    assert len(run_replicas(1, lambda rank, store: "x" * 5_000_000)) == 5_000_000


def test_every_replica_gets_its_rank_and_the_same_store(tmp_path: Path):
    def work(rank: int, store: str) -> None:
        (tmp_path / str(rank)).write_text(store)

    run_replicas(4, work)
    assert {p.name for p in tmp_path.iterdir()} == {"0", "1", "2", "3"}
    assert len({p.read_text() for p in tmp_path.iterdir()}) == 1


def test_an_error_of_ours_is_raised_as_it_was():
    def work(rank: int, store: str) -> None:
        if rank == 1:
            raise PlanError("this cannot work")
        time.sleep(60)

    with pytest.raises(PlanError, match="this cannot work"):
        run_replicas(2, work)


def test_an_error_of_the_user_s_names_the_replica_and_keeps_its_trace():
    def work(rank: int, store: str) -> None:
        if rank == 1:
            raise ZeroDivisionError("in the user's model")
        time.sleep(60)

    with pytest.raises(ReplicaDied, match=r"Replica 1 failed with ZeroDivisionError") as caught:
        run_replicas(2, work)
    assert "Traceback" in str(caught.value)


def test_an_error_that_cannot_be_pickled_is_still_reported():
    class Odd(Exception):
        def __reduce__(self):
            raise TypeError("no pickle")

    def work(rank: int, store: str) -> None:
        raise Odd("strange")

    with pytest.raises(ReplicaDied, match="strange"):
        run_replicas(1, work)


def test_a_killed_replica_ends_the_others_and_is_named(tmp_path: Path):
    def work(rank: int, store: str) -> None:
        (tmp_path / str(rank)).write_text(str(os.getpid()))
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    with pytest.raises(ReplicaDied, match=r"Replica 1 was killed by signal 9, SIGKILL"):
        run_replicas(2, work)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "0").read_text()), 0)


def test_the_cause_is_reported_and_not_its_echo():
    def work(rank: int, store: str) -> None:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.3)
        raise ConnectionError("peer is gone")

    with pytest.raises(ReplicaDied, match="Replica 1 was killed"):
        run_replicas(3, work)


def test_exit_in_a_replica_is_no_success():
    with pytest.raises(ReplicaDied, match="SystemExit"):
        run_replicas(1, lambda rank, store: sys.exit(0))


def test_ctrl_c_before_the_training_starts_is_an_interruption():
    parent = os.getpid()

    def work(rank: int, store: str) -> None:
        os.kill(parent, signal.SIGINT)
        time.sleep(60)

    with pytest.raises(Interrupted):
        run_replicas(1, work)


@pytest.mark.parametrize("hook", ["before", "after_in_parent"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_midst_of_a_fork_is_an_interruption(hook: str, number: int):
    sent: list[int] = []

    def interrupt() -> None:
        if not sent:  # a hook stays for good
            sent.append(number)
            os.kill(os.getpid(), number)

    os.register_at_fork(**{hook: interrupt})
    with pytest.raises(Interrupted):
        run_replicas(2, lambda rank, store: time.sleep(60))


def test_replicas_die_with_a_killed_parent(tmp_path: Path):
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, signal, time, sys\n"
        "from lockstep.processes.replicas import run_replicas\n"
        "def work(rank, store):\n"
        "    sys.stdout.write(f'{os.getpid()}\\n'); sys.stdout.flush()\n"
        "    if rank == 0:\n"
        "        os.kill(os.getppid(), signal.SIGKILL)\n"
        "    time.sleep(60)\n"
        "run_replicas(1, work)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the replica outlived its parent")
