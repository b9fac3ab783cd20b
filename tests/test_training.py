"""lockstep.train as programs call it: plain scripts, torchrun, processes that must not fork."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import FrozenInstanceError, replace
from functools import partial
from pathlib import Path

import pytest
import torch

import lockstep
from lockstep.errors import FolderError, NotFinite, PlanError, RecipeError
from lockstep.models import gpt, wideresnet
from lockstep.processes.safe_fork import reason_not_to_fork
from replicas import lockstep as command
from replicas import small

EXAMPLE = Path(__file__).parent.parent / "examples" / "two_seeds.py"


def test_train_returns_the_run_that_its_folder_holds(tmp_path: Path, capfd):
    recipe = small()
    run = lockstep.train(recipe, replicas=2, exact=True, out=tmp_path / "run", seed=3, epochs=1)
    assert (run.replicas, run.exact, run.steps, run.epochs) == (2, True, 4, 1)
    assert run.summary["recipe"]["seed"] == 3
    assert set(run.metrics) == {"accuracy", "test_loss"}
    assert run.seconds > 0
    assert run.report.exists()
    content = (run.folder / "weights.safetensors").read_bytes()
    assert hashlib.sha256(content).hexdigest() == run.weights_sha256
    assert [r["epoch"] for r in run.history() if r["kind"] == "test"] == [1]
    assert "epoch 1/1" in capfd.readouterr().out
    loaded = lockstep.Run.load(str(run.folder))
    assert replace(loaded, summary=run.summary) == run
    with pytest.raises(FrozenInstanceError):
        run.steps = 5  # type: ignore[misc]


def test_train_and_the_command_reach_the_same_weights(tmp_path: Path, monkeypatch, capfd):
    recipe = replace(
        lockstep.recipes.DIGITS, model=partial(wideresnet, depth=10, width=1, channels=1)
    )
    run = lockstep.train(recipe, out=tmp_path / "a", max_steps=3, device="cpu", quiet=True)
    assert capfd.readouterr().out == ""
    arguments = ["--model", "wideresnet(10, 1, channels=1)", "--max-steps", "3", "--device", "cpu"]
    out = tmp_path / "b"
    assert command(monkeypatch, "train", "digits", *arguments, "--out", str(out), "--json") == 0
    assert json.loads(capfd.readouterr().out)["weights_sha256"] == run.weights_sha256


def test_a_built_in_recipe_is_found_by_its_name(tmp_path: Path):
    run = lockstep.train("line", out=tmp_path / "run", epochs=3, device="cpu", quiet=True)
    assert run.summary["recipe"]["name"] == "line"
    assert run.epochs == 3
    with pytest.raises(RecipeError, match="Did you mean line"):
        lockstep.train("lime")


def test_a_run_is_continued(tmp_path: Path):
    recipe = small()
    options = {"out": tmp_path / "run", "exact": True, "device": "cpu", "quiet": True}
    lockstep.train(recipe, max_steps=3, checkpoint_every=1, **options)
    resumed = lockstep.train(recipe, resume=True, replicas=2, **options)
    whole = lockstep.train(recipe, **options | {"out": tmp_path / "whole"})
    assert resumed.weights_sha256 == whole.weights_sha256


def test_the_weights_go_back_into_a_model_also_tied_ones(tmp_path: Path):
    build = partial(gpt, layers=1, width=32, length=16)
    data = partial(lockstep.data.stdlib, length=16, megabytes=0.02)
    recipe = replace(lockstep.recipes.RECIPES["stdlib"], model=build, data=data, warmup=0.0)
    run = lockstep.train(recipe, out=tmp_path / "run", max_steps=2, device="cpu", quiet=True)
    model = run.load_weights(build())
    assert torch.equal(model.tokens.weight, run.weights()["tokens.weight"])
    assert model.head.weight is model.tokens.weight
    with pytest.raises(RecipeError, match="does not fit"):
        run.load_weights(gpt(layers=2, width=32, length=16))


def test_a_run_that_fails_raises_and_leaves_a_report(tmp_path: Path):
    out = tmp_path / "run"
    with pytest.raises(NotFinite):
        lockstep.train(small(learning_rate=1e12), out=out, device="cpu", quiet=True)
    assert (out / "report.html").exists()
    with pytest.raises(FolderError, match=r"not finished \(failed\)"):
        lockstep.Run.load(out)


def test_a_folder_without_a_run_is_refused(tmp_path: Path):
    with pytest.raises(FolderError, match=r"no run\.json"):
        lockstep.Run.load(tmp_path)


def test_a_run_of_another_version_is_refused(tmp_path: Path):
    (tmp_path / "run.json").write_text('{"status": "finished", "recipe": {"name": "x"}}')
    with pytest.raises(FolderError, match=r"run.json has no epochs, .*another version"):
        lockstep.Run.load(tmp_path)


def test_the_threads_of_the_program_stay(tmp_path: Path):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        lockstep.train("line", out=tmp_path / "run", max_steps=1, device="cpu", quiet=True)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_an_unknown_device_is_refused():
    with pytest.raises(PlanError, match="auto, cpu, cuda"):
        lockstep.train("line", device="tpu")  # type: ignore[arg-type]


def test_a_process_with_other_threads_does_not_fork():
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="reader")
    thread.start()
    try:
        with pytest.raises(PlanError, match=r"other threads \(reader\).*torchrun"):
            lockstep.train("line", quiet=True)
    finally:
        done.set()
        thread.join()


def test_a_process_that_has_used_a_gpu_does_not_fork(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(PlanError, match=r"used a GPU.*Call it earlier"):
        lockstep.train("line", quiet=True)


def in_fresh_process(code: str) -> str:
    env = {**os.environ, "OMP_NUM_THREADS": "2"}
    run = [sys.executable, "-c", f"import sys, torch\n{code}"]
    return subprocess.run(run, capture_output=True, text=True, check=True, env=env).stdout


def test_threads_that_openmp_has_started_are_found_and_matter_only_to_many_threads():
    used = "torch.randn(1000, 1000) @ torch.randn(1000, 1000)"
    shown = (
        "from lockstep.processes import safe_fork\nsafe_fork.PROBE_SECONDS = 2.0\n"
        "for number in (1, 2): print('OpenMP' in str(safe_fork.reason_not_to_fork(number)))"
    )
    assert in_fresh_process(f"{used}\n{shown}").split() == ["False", "True"]
    assert in_fresh_process(shown).split() == ["False", "False"]


def test_one_thread_is_safe_here():
    assert reason_not_to_fork() is None


@pytest.mark.slow
def test_the_example_trains_alone_and_under_torchrun_with_the_same_bits(tmp_path: Path):
    # It trains twice: the second run in a process must not meet what the first has left behind.
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    python = [sys.executable]
    torchrun = [*python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    lines = []
    for name, start in (("alone", python), ("joined", torchrun)):
        command = [*start, str(EXAMPLE), str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
        assert done.returncode == 0, done.stderr
        lines += done.stdout.splitlines()
    replicas, results = zip(*(line.split(" replica(s): ") for line in lines), strict=True)
    assert sorted(replicas) == ["1", "2", "2"]
    assert len(set(results)) == 1


def test_under_torchrun_the_folder_must_be_named(monkeypatch):
    monkeypatch.setattr("lockstep.training.launched", lambda: (0, 2, 0))
    with pytest.raises(PlanError, match="name the run's folder"):
        lockstep.train("line")
