"""Which values are models in DDP, and where."""

from __future__ import annotations

from pathlib import Path

from lockstep.source.project import Project
from lockstep.source.reading import parse
from lockstep.source.training import Training

SCRIPT = """
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def train(net):
    net(1)

def early(first):
    first(5)

model = Net()
model(2)
inner = model
early(model)
model = DDP(model)
model(3)
other = FSDP(Net())
other(4)
train(model)
inner(6)
for fold in range(2):
    again(7)
    again = DDP(again)
moved = torch.compile(DDP(Net()).to(0))
moved(8)
"""
NAMES = "net", "model", "other", "first", "inner", "again", "moved"


def told() -> dict[str, bool]:
    script = parse(Path("a.py"), SCRIPT)
    training = Training(Project([script]))
    calls = [call for call in script.calls if script.code(call.func) in NAMES]
    return {script.code(call): training.wrapped(script, call.func) for call in calls}


def test_a_model_is_wrapped_after_the_wrap_and_in_functions_that_get_it():
    assert told()["model(3)"]
    assert told()["net(1)"]
    assert told()["moved(8)"]


def test_a_model_is_not_wrapped_before_the_wrap_nor_by_fsdp():
    assert not told()["model(2)"]
    assert not told()["other(4)"]


def test_a_value_that_was_handed_on_before_a_later_assignment_is_the_old_one():
    assert not told()["first(5)"]
    assert not told()["inner(6)"]


def test_a_loop_brings_later_assignments_back():
    assert told()["again(7)"]
