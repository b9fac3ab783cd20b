"""Divide loaders that have their own sampler, or that another file makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.convert import Options, convert
from lockstep.convert.verify import verify
from lockstep.errors import ConvertError
from lockstep.source.reading import read_script

DATA = """\
import torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

torch.manual_seed(3)
x = torch.randn(320, 8)
y = (x.sum(1) > 1).long()


def loaders(batch):
    data = TensorDataset(x[:256], y[:256])
    train = DataLoader(data, batch_size=batch, shuffle=True, drop_last=True)
    return train, DataLoader(TensorDataset(x[256:], y[256:]), batch_size=batch)
"""
TRAIN = """\
from torch import nn

{made}
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for inputs, labels in train_loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    right = 0
    with torch.no_grad():
        for inputs, labels in test_loader:
            right += (model(inputs).argmax(1) == labels).sum().item()
    print(epoch, right / 64)
"""
ELSEWHERE = "import torch\nfrom data import loaders\n" + TRAIN.format(
    made="train_loader, test_loader = loaders(32)"
)
WEIGHTED = DATA + TRAIN.format(
    made="_, test_loader = loaders(32)\n"
    "weights = torch.where(y[:256] > 0, 2.0, 1.0)\n"
    "sampler = WeightedRandomSampler(weights, num_samples=256)\n"
    "train_loader = DataLoader(TensorDataset(x[:256], y[:256]), batch_size=32, sampler=sampler)"
)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "data.py").write_text(DATA)
    return tmp_path / "train.py"


def test_a_loader_of_another_file_is_made_anew_here(script: Path):
    script.write_text(ELSEWHERE)
    found = convert(read_script(script))
    assert (
        "train_loader, test_loader = loaders(32)\ntrain_loader = divided(train_loader)"
        in found.text
    )
    assert "loader.batch_size // WORLD_SIZE" in found.text
    assert any("the evaluation is in another file" in note.text for note in found.notes)


def test_batches_stay_as_they_are_when_that_is_asked_for(script: Path):
    script.write_text(ELSEWHERE)
    text = convert(read_script(script), Options(scale_batch=True)).text
    assert "batch_size=loader.batch_size,\n" in text
    assert "assert loader.batch_size" not in text


def test_a_loop_in_another_file_is_refused(script: Path):
    loop = "def fit(model, optimizer, loader):\n    for x, y in loader:\n"
    loop += "        model(x).sum().backward()\n        optimizer.step()\n"
    (script.parent / "data.py").write_text(DATA + "\n\n" + loop)
    script.write_text(
        "import torch\nfrom data import fit, loaders\n\ntrain_loader, _ = loaders(32)\n"
        "model = torch.nn.Linear(8, 2)\n"
        "fit(model, torch.optim.SGD(model.parameters(), 0.1), train_loader)\n"
    )
    with pytest.raises(ConvertError, match=r"The training loop is in data.py, line 16\."):
        convert(read_script(script))


@pytest.mark.parametrize("text", [ELSEWHERE, WEIGHTED], ids=["elsewhere", "weighted"])
def test_two_processes_train_as_one(script: Path, text: str):
    script.write_text(text)
    result = script.with_name("result.py")
    result.write_text(convert(read_script(script)).text)
    verdict = verify(script, result, replicas=(1, 2), working=script.parent, doctor=False, steps=12)
    assert [c.text for c in verdict.comparisons if c.status != "equal"] == []
    assert not verdict.failure
