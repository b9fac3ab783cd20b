"""Sums in shared memory: the bits of the tree, no matter the pieces; and what ends a wait."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.engine.exchange import shared_memory as module
from lockstep.engine.exchange.hooks import BlockingExchange, attach
from lockstep.engine.exchange.reduce import tree_reduce
from lockstep.engine.exchange.shared_memory import SharedMemory, set_up
from lockstep.engine.group import Group
from lockstep.errors import ReplicaDied
from replicas import in_double, on_replicas, small, train

LENGTHS = [0, 1, 2, 3, 5, 7, 8, 1000, 4097]


def numbers(length: int, rank: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Of very different size: another order of the sum has other bits."""
    generator = numpy.random.default_rng([length, rank])
    sizes = 10.0 ** generator.integers(-4, 5, length)
    return torch.from_numpy(generator.standard_normal(length) * sizes).to(dtype)


def memory_of(group: Group, timeout: float = 60.0) -> SharedMemory:
    memory = set_up(group, timeout)
    assert isinstance(memory, SharedMemory), memory
    return memory


@pytest.mark.parametrize("slot", [64, 1 << 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("replicas", [2, 4])
def test_shared_memory_adds_what_the_tree_adds_bit_for_bit(
    monkeypatch, replicas: int, dtype: torch.dtype, slot: int
):
    monkeypatch.setattr(module, "SLOT", slot)

    def work(group: Group) -> bool:
        memory, same = memory_of(group), True
        for length in LENGTHS:
            ours, theirs = (numbers(length, group.world.rank, dtype) for _ in range(2))
            memory.add(ours)
            tree_reduce(theirs)
            same &= torch.equal(ours, theirs)
        return same

    assert on_replicas(replicas, work) == [True] * replicas


def test_shared_memory_works_inside_a_larger_buffer():
    def work(group: Group) -> list[float]:
        whole = torch.full((11,), -1.0)
        part = whole[3:8]
        part.copy_(torch.arange(5.0) + group.world.rank)
        memory_of(group).add(part)
        return whole.tolist()

    assert on_replicas(2, work) == [[-1.0] * 3 + [1.0, 3.0, 5.0, 7.0, 9.0] + [-1.0] * 3] * 2


def test_replicas_that_come_at_their_own_time_do_not_disturb_a_sum():
    def work(group: Group) -> bool:
        memory, right = memory_of(group), True
        for turn in range(200):
            if turn % 4 == group.world.rank:
                time.sleep(0.001)
            buffer = torch.full((300,), float(turn + group.world.rank))
            memory.add(buffer)
            right &= bool((buffer == 4 * turn + 6).all())
        return right

    assert on_replicas(4, work) == [True] * 4


def refusal(group: Group) -> str:
    answer = set_up(group, 20.0)
    return answer if isinstance(answer, str) else "none"


def test_replicas_on_several_machines_have_no_shared_memory():
    def work(group: Group) -> str:
        module._machine = lambda: ("boot", str(group.world.rank))  # type: ignore[assignment]
        return refusal(group)

    assert on_replicas(2, work) == ["the replicas are on several machines"] * 2


def test_other_systems_have_no_shared_memory(monkeypatch):
    monkeypatch.setattr(module, "sys", SimpleNamespace(platform="darwin"))
    assert on_replicas(2, refusal) == ["it needs Linux"] * 2


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_memory_that_one_replica_cannot_have_is_the_answer_of_all(rank: int):
    def work(group: Group) -> str:
        def full(*arguments: Any) -> None:
            raise OSError(28, "No space left on device")

        if group.world.rank == rank:
            os.posix_fallocate = full  # type: ignore[assignment]
            module.mmap.mmap = full  # type: ignore[assignment, misc]
        return refusal(group)

    answers = on_replicas(4, work)
    assert len(set(answers)) == 1
    assert "No space left on device" in answers[0]


@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize("what", ["accept", "connect", "bind"])
def test_a_socket_that_fails_on_one_replica_is_the_answer_of_all(rank: int, what: str):
    def work(group: Group) -> str:
        class Failing(socket.socket):
            def fail(self, *arguments: Any) -> Any:
                raise OSError(24, "Too many open files")

        setattr(Failing, what, Failing.fail)
        if group.world.rank == rank:
            module.socket.socket = Failing  # type: ignore[misc]
        return refusal(group)

    answers = on_replicas(4, work)
    # The first calls nobody, and nobody calls the last.
    unused = (what, rank) in (("connect", 0), ("accept", 3))
    assert answers == ["none" if unused else "OSError: [Errno 24] Too many open files"] * 4


def test_a_system_that_does_not_tell_its_name_has_no_shared_memory():
    def work(group: Group) -> str:
        if group.world.rank == 1:
            module._machine = lambda: (Path("/proc/nothing").read_text(), "")  # type: ignore[assignment]
        return refusal(group)

    answers = on_replicas(2, work)
    assert len(set(answers)) == 1
    assert answers[0].startswith("FileNotFoundError")


def test_a_stranger_at_the_door_is_no_replica():
    def work(group: Group) -> str:
        names: list[bytes] = []
        objects = group.objects

        def noting(value: Any) -> list[Any]:
            told = objects(value)
            if not names and group.world.rank == 1:
                names.append(told[0][0][1])
                with socket.socket(socket.AF_UNIX) as stranger:
                    stranger.connect(names[0])
            return told

        group.objects = noting  # type: ignore[method-assign]
        return refusal(group)

    answers = on_replicas(2, work)
    assert len(set(answers)) == 1
    assert answers[0] != "none"


def test_after_a_sum_that_failed_there_is_no_other():
    def work(group: Group) -> str:
        memory = memory_of(group, timeout=0.3)
        if group.world.rank == 1:
            time.sleep(1.0)
        told = []
        for _ in range(2):
            with pytest.raises((TimeoutError, ConnectionError)) as caught:
                memory.add(torch.ones(10))
            told.append(str(caught.value))
        return told[1]

    assert on_replicas(2, work) == ["replica 1 is gone", "replica 0 is gone"]


def test_a_mean_that_a_small_type_holds_is_found_though_the_sum_is_too_large():
    def work(group: Group) -> float:
        model = DistributedDataParallel(nn.Linear(2, 1, bias=False).half())
        attach(model, BlockingExchange(memory_of(group)))
        (model(torch.full((1, 2), 40000.0, dtype=torch.float16)) * 1.0).sum().backward()
        return model.module.weight.grad[0, 0].item()

    assert on_replicas(2, work) == [40000.0] * 2


def test_a_replica_that_dies_is_named_and_nobody_waits_for_it():
    def work(group: Group) -> None:
        memory = memory_of(group)
        group.objects("ready")
        if group.world.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        memory.add(torch.ones(10))

    with pytest.raises(ReplicaDied, match="Replica 1 was killed"):
        on_replicas(2, work)


def test_a_replica_whose_peer_has_left_says_so():
    def work(group: Group) -> str:
        memory = memory_of(group)
        group.objects("ready")
        if group.world.rank == 1:
            for peer in memory.peers.values():
                peer.close()
            return ""
        with pytest.raises(ConnectionError) as caught:
            memory.add(torch.ones(10))
        return str(caught.value)

    assert on_replicas(2, work)[0] == "replica 1 is gone"


def test_a_replica_that_does_not_come_is_waited_for_until_the_timeout():
    def work(group: Group) -> str:
        memory = memory_of(group, timeout=0.3)
        if group.world.rank == 1:
            time.sleep(1.0)
            return ""
        with pytest.raises(TimeoutError) as caught:
            memory.add(torch.ones(10))
        return str(caught.value)

    assert on_replicas(2, work)[0] == "replica 1 has not come to the exchange within 0.3 s"


@pytest.mark.parametrize("exact", [False, True])
def test_training_is_the_same_with_and_without_shared_memory(tmp_path: Path, request, exact: bool):
    recipe = small() if exact else in_double(small())
    ours = train(recipe, tmp_path / "memory", 2, exact=exact)
    request.getfixturevalue("gloo")
    theirs = train(recipe, tmp_path / "gloo", 2, exact=exact)
    assert ours["exchange"]["through"] == "shared memory"
    assert ours["exchange"]["sent_bytes"] == 0
    assert theirs["exchange"]["through"] == "gloo"
    assert theirs["exchange"]["why"] == "this is a test"
    assert theirs["exchange"]["sent_bytes"] == theirs["exchange"]["gradient_bytes"]
    weights = [load_file(tmp_path / name / "weights.safetensors") for name in ("memory", "gloo")]
    bound = 0.0 if exact else 1e-10
    assert max((weights[0][n] - weights[1][n]).abs().max() for n in weights[0]) <= bound
