"""Run a script as several ranks, forked from a process that has torch, without probes."""

from __future__ import annotations

from os import environ
from pathlib import Path

from lockstep.processes.fork import end_group
from lockstep.processes.forked import start_forked
from lockstep.processes.ports import free_port


def run_ranks(script: Path, number: int) -> list[str]:
    """What each of `number` ranks prints; every one must end well.

    A forked process exits without taking gloo apart, which aborts a plain process now and then.
    """
    common = {
        "WORLD_SIZE": str(number),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    logs = [script.with_suffix(f".{rank}.log") for rank in range(number)]
    started = []
    for rank, log in enumerate(logs):
        ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
        with log.open("wb") as output:
            env = {**environ, **common, **ranks}
            started.append(start_forked([str(script)], env=env, output=output, cwd=script.parent))
    try:
        codes = [process.wait(300) for process in started]
    finally:
        for process in started:
            end_group(process.pid)
            process.wait()
    printed = [log.read_text() for log in logs]
    assert codes == [0] * number, printed
    return printed
