"""A data worker whose fork hangs is replaced."""

from __future__ import annotations

import os
import time

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from lockstep.errors import RunError
from lockstep.processes import data_worker
from lockstep.processes.data_worker import WorkerContext, checked_fork


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let the first children never come out of their fork; return how many are still to hang."""
    real, left = os.fork, [1]

    def fork() -> int:
        pid = real()
        if left[0]:
            if not pid:
                time.sleep(60)
                os._exit(1)
            left[0] -= 1
        return pid

    monkeypatch.setattr(data_worker, "_fork", fork)
    monkeypatch.setattr(data_worker, "SECONDS", 0.2)
    return left


def test_a_child_that_hangs_in_its_fork_is_replaced(hanging: list[int]):
    data = TensorDataset(torch.arange(6))
    loader: DataLoader[tuple[torch.Tensor, ...]] = DataLoader(
        data, batch_size=2, num_workers=2, multiprocessing_context=WorkerContext()
    )
    assert [batch[0].tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
    assert hanging == [0]


def test_children_that_always_hang_are_given_up(hanging: list[int]):
    hanging[0] = data_worker.TRIES
    with pytest.raises(RunError, match=r"hung.*--workers 0"):
        checked_fork()
    assert hanging == [0]


def test_only_workers_are_forked_this_way():
    plain = os.fork
    process = WorkerContext().Process(target=int)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert os.fork is plain
