"""A program that imports code for ranks but starts none is left alone."""

from __future__ import annotations

from pathlib import Path

from lockstep.doctor import check
from lockstep.doctor.output import summary

RUNNING = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

__all__ = ["begin"]

def begin():
    '''Call begin before anything else.'''
    dist.init_process_group("nccl")

class Runner:
    def __init__(self, net):
        self.net = net

    def spread(self):
        self.net = DistributedDataParallel(self.net)

    def renamed(self, state):
        return {name[4:]: value for name, value in state.items()}

if __name__ == "__main__":
    begin()
"""
CONVERT = """
import torch
from running import Runner
net = torch.nn.Linear(10, 2)
runner = Runner(net)
net.load_state_dict(runner.renamed(torch.load("old.pt")))
torch.save(net.state_dict(), "new.pt")
"""


def test_a_converter_beside_a_training_script_does_not_train(tmp_path: Path):
    (tmp_path / "running.py").write_text(RUNNING)
    (tmp_path / "convert.py").write_text(CONVERT)
    checked = check([tmp_path])
    assert (checked.findings, checked.distributed) == ([], 0)


def test_the_converter_trains_once_it_calls_the_method_that_wraps(tmp_path: Path):
    (tmp_path / "running.py").write_text(RUNNING)
    (tmp_path / "convert.py").write_text(CONVERT + "runner.spread()\n")
    checked = check([tmp_path])
    assert checked.distributed == 1
    assert "every_rank_saves" in {finding.rule.name for finding in checked.findings}


def test_code_in_forward_counts_as_used_though_nothing_calls_forward_by_name(tmp_path: Path):
    forward = "class Net:\n    def forward(self, x):\n        dist.init_process_group('nccl')\n"
    (tmp_path / "net.py").write_text("import torch.distributed as dist\n" + forward)
    (tmp_path / "main.py").write_text("import torch\nfrom net import Net\nNet()(1)\n")
    assert check([tmp_path]).distributed == 1


SWITCH = """
import torch
import torch.distributed as dist
distributed = {}
model = torch.nn.Linear(2, 2)
if distributed:
    dist.init_process_group("nccl")
    model = torch.nn.parallel.DistributedDataParallel(model)
torch.save(model.state_dict(), "a.pt")
"""


def test_a_switch_that_is_off_is_pointed_out(tmp_path: Path):
    script = tmp_path / "train.py"
    for value, found in (("False", (0, 1)), ("True", (1, 0)), ("args.distributed", (1, 0))):
        script.write_text(SWITCH.format(value))
        checked = check([script])
        assert (checked.distributed, checked.switched_off) == found
        assert ("never reached" in summary(checked)) is (value == "False")
