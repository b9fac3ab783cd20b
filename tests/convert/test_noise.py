"""Random numbers and devices that processes share, and those that differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.convert import convert
from lockstep.source.reading import parse

SCRIPT = """\
import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.tensor([float(i), {drawn}])


{device}
loader = DataLoader(Pairs(), batch_size=16, shuffle=True)
model = torch.nn.Linear(2, 1).to(gpu)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x in loader:
        {train}
        optimizer.zero_grad()
        model(x.to(gpu)).pow(2).mean().backward()
        optimizer.step()
"""


def of(drawn: str = "1.0", train: str = "pass", device: str = "gpu = 'cpu'") -> str:
    text = SCRIPT.format(drawn=drawn, train=train, device=device)
    return convert(parse(Path("train.py"), text)).text


@pytest.mark.parametrize(
    ("drawn", "train", "seeded"),
    [
        ("random.random()", "pass", ["random.seed(torch.initial_seed())"]),
        ("np.random.rand()", "pass", ["np.random.seed(torch.initial_seed() % 2**32)"]),
        ("1.0", "pass", []),
        # Who draws in the loop decides something for all.
        ("random.random()", "x = x if random.random() < 0.5 else -x", []),
    ],
)
def test_data_sets_draw_on_each_process_for_themselves(drawn: str, train: str, seeded: list[str]):
    lines = [line.strip() for line in of(drawn, train).splitlines()]
    at = lines.index("torch.manual_seed(torch.initial_seed() + RANK)")
    assert lines[at + 1 : at + 1 + len(seeded)] == seeded
    assert sum(
        "initial_seed() % " in line or "(torch.initial_seed())" in line for line in lines
    ) == len(seeded)


@pytest.mark.parametrize(
    ("device", "line"),
    [
        ("gpu = 0", "gpu = LOCAL_RANK"),
        ("gpu = 3", "gpu = 3 if WORLD_SIZE == 1 else LOCAL_RANK"),
    ],
)
def test_the_number_of_a_gpu_becomes_that_of_the_process(device: str, line: str):
    assert f"\n{line}\n" in of(device=device)


def test_a_gpu_that_a_flag_names_is_kept_alone():
    device = "import argparse\nparser = argparse.ArgumentParser()\n"
    device += "parser.add_argument('--gpu', type=int, default=0)\nargs = parser.parse_args()"
    text = SCRIPT.format(drawn="1.0", train="pass", device=device).replace("(gpu)", "(args.gpu)")
    found = convert(parse(Path("train.py"), text)).text
    assert found.count(".to(args.gpu if WORLD_SIZE == 1 else LOCAL_RANK)") == 2


def test_a_seed_that_is_drawn_is_the_same_for_all():
    device = "gpu = 'cpu'\nrandom.seed(random.randint(1, 10000))"
    lines = [line.strip() for line in of(device=device).splitlines()]
    assert lines.index("random.seed(0)") < lines.index("random.seed(random.randint(1, 10000))")
    assert "random.seed(0)" not in of(device="gpu = 'cpu'\nrandom.seed(7)\nrandom.random()")


def test_a_model_is_wrapped_where_it_comes_to_its_gpu():
    text = """\
import torch
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, loader, optimizer, gpu):
        self.model = model.to(gpu)
        self.loader, self.optimizer = loader, optimizer

    def run(self):
        for epoch in range(2):
            for x, y in self.loader:
                self.optimizer.zero_grad()
                torch.nn.functional.mse_loss(self.model(x), y).backward()
                self.optimizer.step()
        torch.save(self.model.state_dict(), "model.pt")


def load():
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def main():
    model, optimizer = load()
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    Trainer(model, DataLoader(data, batch_size=16, shuffle=True), optimizer, 0).run()


main()
"""
    found = convert(parse(Path("train.py"), text)).text
    assert (
        "        self.model = model.to(gpu)\n"
        "        if WORLD_SIZE > 1:\n"
        "            self.model = DistributedDataParallel(self.model)\n"
    ) in found
    assert "bare(self.model).state_dict()" in found
    assert "optimizer, LOCAL_RANK).run()" in found


def test_a_whole_model_is_read_to_the_device_of_the_script():
    end = "\nmodel = torch.load('model.pt', weights_only=False)\nprint(model(x))\n"
    text = SCRIPT.format(drawn="1.0", train="pass", device="device = gpu = 'cuda'") + end
    found = convert(parse(Path("train.py"), text)).text
    assert "torch.load('model.pt', weights_only=False, map_location=device)" in found
    text = SCRIPT.format(drawn="1.0", train="pass", device="gpu = 'cuda'") + end
    assert any(
        "give map_location" in note.text for note in convert(parse(Path("t.py"), text)).notes
    )


def test_batch_norm_of_a_library_is_synchronised():
    text = SCRIPT.format(drawn="1.0", train="pass", device="gpu = 'cuda'")
    text = text.replace("import torch\n", "import torch\nfrom torchvision import models\n", 1)
    assert "SyncBatchNorm" not in convert(parse(Path("train.py"), text)).text
    text = text.replace("torch.nn.Linear(2, 1)", "models.resnet18()")
    assert "convert_sync_batchnorm(model)" in convert(parse(Path("train.py"), text)).text
