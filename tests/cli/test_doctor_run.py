"""lockstep doctor --run as a user types it: exit codes, the document, bad flags."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lockstep.cli import main
from torchvision_folder import FOLDER

CASES = Path(__file__).parent.parent / "cases" / "doctor_run"
DRIFTS = CASES / "replicas_drift" / "bad_no_ddp.py"
GOOD = CASES / "in_batch_loss" / "good_contrastive.py"


@pytest.fixture
def doctor(monkeypatch, capfd, tmp_path):
    """Run the command from an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> SimpleNamespace:
        monkeypatch.setattr(sys, "argv", ["lockstep", "doctor", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        shown = capfd.readouterr()
        assert "Traceback" not in shown.out + shown.err
        return SimpleNamespace(code=left.value.code, out=shown.out, err=shown.err)

    return run


def test_a_correct_script_ends_in_zero(doctor):
    run = doctor(GOOD, "--run", "--steps", 4, "--ignore", "unscaled_learning_rate")
    assert (run.code, run.err) == (0, ""), run.out
    assert "gradient oracle: the gradient of 2 ranks agrees" in run.out
    assert "4 steps" in run.out


def test_a_bug_ends_in_one_and_the_document_has_what_was_seen(doctor):
    run = doctor(DRIFTS, "--run", "--json", "--no-oracle", "--select", "replicas_drift")
    assert run.code == 1
    document = json.loads(run.out)
    (finding,) = document["findings"]
    assert (finding["code"], finding["seen"]) == ("LS31", "running")
    assert document["run"]["ended"] == "finished"
    assert document["run"]["ranks"] == 2
    assert document["run"]["oracle"] is None
    assert document["run"]["drift"]["parameters_differ_after_step"] == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print('one process')", "did not train on 2 ranks"),
        ("import sys; sys.exit('no data')", "failed before its ranks met"),
    ],
)
def test_a_script_that_never_was_distributed_ends_in_two(doctor, tmp_path, text, said):
    path = tmp_path / "plain.py"
    path.write_text(text)
    run = doctor(path, "--run")
    assert run.code == 2
    assert said in run.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([GOOD, "--run", "--replicas", "1"], "--replicas 1: give 2 to"),
        ([GOOD, DRIFTS, "--run"], "--run runs one script"),
        (["notebook.ipynb", "--run"], "nbconvert"),
        ([CASES, "--run"], "--run runs one script"),
        ([GOOD, "--run", "--launch", "nonsense"], "--launch nonsense: known are auto"),
        ([GOOD, "--run", "--timeout", "0"], "--timeout 0: give a number of seconds"),
        ([GOOD, "--run", "--batches", "0"], "--steps must be 0 or more, and --batches 1 or more"),
        ([GOOD, "--run", "--fix"], "fix the script first"),
        ([GOOD, "--", "--epochs", "1"], "need --run"),
        ([GOOD, "--run", "--out", GOOD], "Name a folder"),
    ],
)
def test_flags_that_cannot_work_are_refused_with_what_to_type_instead(doctor, arguments, said):
    run = doctor(*arguments)
    assert run.code == 2
    assert said in run.err.replace("\n", " ")


STOOD_IN = """
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
data = datasets.FashionMNIST("data", download=True, transform=transforms.ToTensor())
sampler = DistributedSampler(data)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * dist.get_world_size())
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, batch_size=64, sampler=sampler):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
"""


def test_a_script_without_its_data_runs_on_stand_in_data_and_the_report_says_so(
    doctor, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", str(FOLDER), prepend=os.pathsep)
    script = tmp_path / "train.py"
    script.write_text(STOOD_IN)
    asked = ("--run", "--stand-in-data", "--json", "--steps", 6)
    run = doctor(script, *asked, "--ignore", "starving_loader,every_rank_downloads")
    document = json.loads(run.out)
    assert run.code == 0, document
    assert "FashionMNIST: stand-in data, 2,048 samples of 1x28x28" in document["run"]["fake_data"]
    assert document["run"]["oracle"]["verdict"] == "agrees"


def test_a_missing_library_is_named(tmp_path, monkeypatch, capfd):
    script = tmp_path / "train.py"
    script.write_text("import torch\nimport no_such_library\n")
    monkeypatch.setattr(sys, "argv", ["lockstep", "doctor", str(script), "--run"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    said = capfd.readouterr().err
    assert "the script needs no_such_library, which is not installed here. Install it" in said
