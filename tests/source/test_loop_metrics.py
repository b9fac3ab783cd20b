"""Sums over a loop's batches are followed to where they are used, and reductions are seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.source.loop_metrics import Tally
from lockstep.source.project import Project
from lockstep.source.reading import parse
from lockstep.source.training import Training

HEAD = """
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("nccl")
val_loader = DataLoader(val_set, 64, sampler=DistributedSampler(val_set))

def evaluate(loader):
    correct = total = steps = 0
    for x, y in loader:
        correct += (model(x).argmax(1) == y).sum().item()
        total += len(y)
        steps += 1
"""


def read(text: str) -> Training:
    return Training(Project([parse(Path("script.py"), HEAD + text)]))


def followed(text: str) -> Tally:
    training = read(text)
    return Tally(training, training.loops[0])


def used(tally: Tally) -> list[str]:
    return [script.code(node) for script, node in tally.uses]


def test_sums_are_found_and_counters_are_not():
    tally = followed("    return correct / total\n\nevaluate(val_loader)\n")
    assert tally.names == {"correct", "total"}


def test_a_returned_value_is_followed_to_the_callers():
    tally = followed("    return correct / total, x\n\nacc, x = evaluate(val_loader)\nprint(acc)\n")
    assert used(tally) == ["print(acc)"]
    assert not used(followed("    return correct, x\n\n_, x = evaluate(val_loader)\nprint(x)\n"))


@pytest.mark.parametrize(
    "use",
    [
        "if evaluate(val_loader) > best: pass",
        "print(evaluate(val_loader))",
        "acc = 100 * evaluate(val_loader)\nscheduler.step(acc)",
    ],
)
def test_a_call_inside_an_expression_is_followed_too(use: str):
    assert len(used(followed(f"    return correct / total\n\n{use}\n"))) == 1


@pytest.mark.parametrize(
    "use",
    [
        "if total > 0: pass",
        "print(f'rank {rank}: {correct}')",
        "print(out.correct, show(correct=1))",
        "x = torch.log(total)",
    ],
)
def test_a_line_that_ignores_the_value_does_not_use_it(use: str):
    assert not used(followed(f"    {use}\n\nevaluate(val_loader)\n"))


@pytest.mark.parametrize(
    "use",
    [
        "    t = torch.tensor([correct])\n    dist.all_reduce(t)\n",
        "    meters.synchronize_between_processes()\n",
        "    return correct\n\nc = evaluate(val_loader)\nc = reduce_sum(c)\n",
        "    mean(correct)\n\ndef mean(x):\n    dist.all_reduce(x)\n",
    ],
)
def test_a_reduction_is_seen(use: str):
    assert followed(use + "\nevaluate(val_loader)\n").reduced


@pytest.mark.parametrize(
    "use",
    ["    x = x.gather(1, y)\n", "    torch.cuda.synchronize()\n", "    dist.all_reduce(flag)\n"],
)
def test_a_name_that_only_sounds_like_a_reduction_is_none(use: str):
    assert not followed(use + "\nevaluate(val_loader)\n").reduced


def test_an_unknown_function_may_do_anything():
    assert not followed("    from lib import mix\n    mix(correct)\n\nevaluate(val_loader)\n").known
    assert followed("    return round(correct, 2)\n\nevaluate(val_loader)\n").known
