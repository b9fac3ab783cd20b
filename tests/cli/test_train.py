"""lockstep train as a user types it: results, misuse, faults."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from replicas import lockstep

TINY = ["--model", "wideresnet(10, 1, channels=1)", "--device", "cpu"]


def test_train_writes_a_folder_and_one_json_document(tmp_path, monkeypatch, capfd):
    out = tmp_path / "run"
    code = lockstep(
        monkeypatch, "train", "digits", *TINY, "--replicas", "2", "--exact", "--epochs", "2",
        "--seed", "3", "--out", str(out), "--timeline", "--json",
    )  # fmt: skip
    assert code == 0
    document = json.loads(capfd.readouterr().out)
    assert document["status"] == "finished"
    assert document["replicas"] == 2
    assert document["exact"] is True
    assert document["recipe"]["seed"] == 3
    assert document["recipe"]["model"] == "wideresnet(10, 1, channels=1)"
    assert len(document["timeline"]) == 2
    names = {p.name for p in out.iterdir()}
    assert names == {
        "run.json",
        "metrics.jsonl",
        "weights.safetensors",
        "checkpoints",
        "receipts.bin",
        "report.html",
    }
    content = (out / "weights.safetensors").read_bytes()
    assert hashlib.sha256(content).hexdigest() == document["weights_sha256"]
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [r["epoch"] for r in records if r["kind"] == "test"] == [1, 2]


def test_train_shows_a_person_a_table_and_the_report(tmp_path, monkeypatch, capfd):
    out = tmp_path / "run"
    arguments = ["train", "digits", *TINY, "--epochs", "1", "--out", str(out)]
    assert lockstep(monkeypatch, *arguments) == 0
    shown = capfd.readouterr().out
    assert "accuracy" in shown
    assert "samples/s" in shown
    assert str(out / "report.html") in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digit"], "Did you mean digits?"),
        (["digits", "--global-batch", "130"], "Nearest that do: 128, 132"),
        (["digits", "--replicas", "3"], "Nearest that do: 2, 4"),
        (["digits", "--replicas", "8"], "--shards 8"),
        (["digits", "--shards", "6"], "Nearest that do: 4, 8"),
        (["digits", "--micro-batch", "100"], "Nearest that do: 64, 128"),
        (["digits", "--exact", "--micro-batch", "128"], "shard by shard"),
        (["digits", "--exact", "--batch-norm", "sync"], "--batch-norm shard"),
        (["digits", "--batch-norm", "sync", "--micro-batch", "64"], "in one pass"),
        (["digits", "--precision", "fp8"], "fp32, tf32, bf16"),
        (["digits", "--epochs", "0"], "1 or more"),
        (["digits", "--learning-rate", "-1"], "above 0"),
        (["digits", "--warmup", "99"], "use 0 to 10"),
        (["digits", "--clip", "many"], "give a number, or none"),
        (["digits", "--keep", "0"], "1 or more"),
        (["digits", "--device", "tpu"], "auto, cpu and cuda"),
        (["digits", "--model", "wideresnet(11)"], "depth 11 is not 6n + 4"),
        (["digits", "--model", "mlpp"], "Did you mean mlp?"),
        (["digits", "--model", "wideresnet(open('x'))"], "plain values"),
        (["digits", "--data", "cifar10(folder='/nowhere')"], "cifar-10"),
        (["nowhere.py"], "does not exist"),
        (["nowhere.at.all:recipe"], "there is no module"),
        (["digits", "--resume"], "--resume needs --out"),
        (["digits", "--resume", "--out", "nothing-here"], "holds no run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_misuse_ends_in_code_2_and_says_what_to_type(
    tmp_path, monkeypatch, capfd, arguments: list[str], message: str
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lockstep.data.images.CIFAR_URL", "http://127.0.0.1:9/", raising=False)
    assert lockstep(monkeypatch, "train", *arguments) == 2
    error = re.sub(r"\s+", " ", capfd.readouterr().err)
    assert message in error
    assert "Traceback" not in error


def test_more_replicas_than_gpus_are_refused(monkeypatch, capfd):
    monkeypatch.setattr("lockstep.cluster.launch.gpu_count", lambda: 2)
    assert lockstep(monkeypatch, "train", "digits", "--replicas", "4") == 2
    assert "this machine has 2 GPUs" in capfd.readouterr().err


def test_a_folder_that_holds_another_run_is_left_alone(tmp_path, monkeypatch, capfd):
    (tmp_path / "run.json").write_text("{}")
    assert lockstep(monkeypatch, "train", "digits", "--out", str(tmp_path)) == 2
    assert "already holds a run" in capfd.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_a_folder_of_the_user_s_is_left_alone(tmp_path, monkeypatch, capfd):
    (tmp_path / "thesis.tex").write_text("")
    assert lockstep(monkeypatch, "train", "digits", "--out", str(tmp_path)) == 2
    assert "is not empty" in capfd.readouterr().err


def test_another_recipe_is_not_resumed(tmp_path, monkeypatch, capfd):
    out = str(tmp_path / "run")
    assert lockstep(monkeypatch, "train", "digits", *TINY, "--max-steps", "2", "--out", out) == 0
    arguments = ["train", "digits", *TINY, "--seed", "5", "--out", out, "--resume"]
    assert lockstep(monkeypatch, *arguments) == 2
    assert "seed was 0, now 5" in capfd.readouterr().err


def test_a_finished_run_is_not_resumed_but_more_epochs_are(tmp_path, monkeypatch, capfd):
    out = str(tmp_path / "run")
    base = ["train", "digits", *TINY, "--warmup", "0", "--out", out]
    assert lockstep(monkeypatch, *base, "--epochs", "1") == 0
    assert lockstep(monkeypatch, *base, "--epochs", "1", "--resume") == 2
    assert "is finished" in capfd.readouterr().err
    assert lockstep(monkeypatch, *base, "--epochs", "2", "--resume") == 0
    assert "its learning-rate schedule differs" in re.sub(r"\s+", " ", capfd.readouterr().out)


def test_a_loss_that_explodes_stops_the_run_and_keeps_the_last_good_checkpoint(
    tmp_path, monkeypatch, capfd
):
    out = tmp_path / "run"
    code = lockstep(
        monkeypatch, "train", "digits", *TINY, "--learning-rate", "1e12", "--warmup", "0",
        "--batch-norm", "shard", "--replicas", "2", "--checkpoint-every", "1", "--out", str(out),
    )  # fmt: skip
    assert code == 1
    error = re.sub(r"\s+", " ", capfd.readouterr().err)
    step = int(re.search(r"NaN or infinite at step (\d+)", error).group(1))
    assert "lower --learning-rate" in error
    assert json.loads((out / "run.json").read_text())["status"] == "failed"
    saved = sorted(int(p.stem.removeprefix("step-")) for p in (out / "checkpoints").iterdir())
    assert all(number < step for number in saved)
    if saved:
        assert f"step-{saved[-1]:08d}" in error


def test_a_recipe_file_of_the_user_s_is_trained(tmp_path, monkeypatch, capfd):
    (tmp_path / "mine.py").write_text(
        "import lockstep, torch\n"
        "from torch.utils.data import Dataset\n"
        "class Points(Dataset):\n"
        "    def __len__(self): return 24\n"
        "    def __getitem__(self, i): return torch.full((2,), i / 24), torch.tensor([i / 12])\n"
        "recipe = lockstep.Recipe(name='mine', model=lambda: torch.nn.Linear(2, 1),\n"
        "    data=lambda: lockstep.Data(train=Points(), test=Points()),\n"
        "    loss=lockstep.metrics.squared_error,\n"
        "    metrics={'error': lockstep.metrics.squared_error},\n"
        "    lower_is_better=True, optimizer=torch.optim.SGD, learning_rate=0.5,\n"
        "    global_batch=8, shards=2, epochs=30, target=0.01)\n"
    )
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "mine.py", "--replicas", "2", "--json", "--out", "o", "--workers", "1"]
    assert lockstep(monkeypatch, *arguments) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["metrics"]["error"] < 0.01
    assert document["seconds_to_target"] is not None
    # The same as module:recipe.
    arguments = ["train", "mine:recipe", "--replicas", "2", "--json", "--out", "p"]
    assert lockstep(monkeypatch, *arguments) == 0
    other = json.loads(capfd.readouterr().out)
    assert other["weights_sha256"] == document["weights_sha256"]


def test_a_recipe_file_that_raises_is_named_with_its_line(tmp_path, monkeypatch, capfd):
    path = tmp_path / "broken.py"
    path.write_text("import lockstep\n\nvalue = {}['key']\n")
    assert lockstep(monkeypatch, "train", str(path)) == 2
    error = capfd.readouterr().err
    assert "KeyError" in error
    assert "line 3" in error


def test_a_mean_loss_is_refused(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "digits", *TINY, "--loss", "torch.nn.functional:cross_entropy"]
    assert lockstep(monkeypatch, *arguments) == 2
    assert 'reduction="none"' in capfd.readouterr().err


def test_the_launcher_s_number_of_processes_wins(monkeypatch, capfd):
    monkeypatch.setattr("lockstep.cluster.launch.launched", lambda: (0, 4, 0))
    assert lockstep(monkeypatch, "train", "digits", "--replicas", "2") == 2
    assert "the launcher started 4 processes" in capfd.readouterr().err


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_other_precisions_train(tmp_path, monkeypatch, capfd, precision: str):
    arguments = ["train", "digits", *TINY, "--precision", precision, "--max-steps", "8", "--json"]
    assert lockstep(monkeypatch, *arguments, "--out", str(tmp_path / "run")) == 0
    assert json.loads(capfd.readouterr().out)["recipe"]["precision"] == precision


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Process:
    """A real `lockstep` in a session of its own, as a terminal would start it."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lockstep", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, path: Path) -> None:
        """Wait until the run has logged something."""
        deadline = time.monotonic() + 60
        while not (path.exists() and path.stat().st_size):
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def replicas(self) -> list[int]:
        return children(self.process.pid)

    def end(self) -> tuple[int, str]:
        output = self.process.communicate(timeout=60)[0]
        return self.process.returncode, re.sub(r"\s+", " ", output)


LONG = ["train", "digits", *TINY, "--replicas", "2", "--exact", "--epochs", "1000", "--warmup", "0"]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z"


def test_ctrl_c_saves_a_checkpoint_and_leaves_no_trace_and_no_orphans(tmp_path: Path):
    out = tmp_path / "run"
    run = Process(*LONG, "--out", str(out))
    run.wait_for(out / "metrics.jsonl")
    replicas = run.replicas()
    os.killpg(run.process.pid, signal.SIGINT)
    code, output = run.end()
    assert code == 1
    assert "its checkpoint is saved. Continue with --resume" in output
    assert "Traceback" not in output
    assert len(replicas) == 2
    assert all(is_gone(pid) for pid in replicas)
    step = int(re.search(r"Stopped after step (\d+)", output).group(1))
    assert (out / "checkpoints" / f"step-{step:08d}.safetensors").exists()


def test_a_replica_killed_with_9_ends_the_run_with_code_1(tmp_path: Path):
    out = tmp_path / "run"
    run = Process(*LONG, "--checkpoint-every", "1", "--out", str(out))
    run.wait_for(out / "metrics.jsonl")
    replicas = run.replicas()
    os.kill(replicas[1], signal.SIGKILL)
    code, output = run.end()
    assert code == 1
    assert "Replica 1 was killed by signal 9" in output
    assert "Continue from its last checkpoint with --resume" in output
    assert all(is_gone(pid) for pid in replicas)


def test_data_workers_die_with_their_replica(tmp_path: Path):
    out = tmp_path / "run"
    run = Process(*LONG, "--no-resident", "--workers", "1", "--out", str(out))
    run.wait_for(out / "metrics.jsonl")
    replicas = run.replicas()
    workers = [child for pid in replicas for child in children(pid)]
    assert len(workers) == 4  # one for training and one for evaluation, on each of two replicas
    os.kill(replicas[0], signal.SIGKILL)
    assert run.end()[0] == 1
    assert all(is_gone(pid) for pid in replicas + workers)


def test_a_request_to_end_that_reaches_all_processes_saves_a_checkpoint(tmp_path: Path):
    out = tmp_path / "run"
    run = Process(*LONG, "--no-resident", "--workers", "1", "--out", str(out))
    run.wait_for(out / "metrics.jsonl")
    # As `timeout` and batch systems do: to data workers too.
    os.killpg(run.process.pid, signal.SIGTERM)
    code, output = run.end()
    assert code == 1
    assert "its checkpoint is saved. Continue with --resume" in output


@pytest.mark.slow
def test_max_restarts_goes_on_from_the_last_checkpoint(tmp_path: Path, monkeypatch, capfd):
    out = tmp_path / "run"
    short = [*LONG, "--max-steps", "120", "--checkpoint-every", "5", "--max-restarts", "1"]
    run = Process(*short, "--out", str(out))
    run.wait_for(out / "metrics.jsonl")
    os.kill(run.replicas()[0], signal.SIGKILL)
    code, output = run.end()
    assert code == 0
    assert "Restarting from the last checkpoint" in output
    undisturbed = [*LONG[:4], *TINY[2:], "--exact", "--epochs", "1000", "--warmup", "0"]
    whole = [*undisturbed, "--max-steps", "120", "--out", str(tmp_path / "whole"), "--json"]
    assert lockstep(monkeypatch, *whole) == 0
    document = json.loads(capfd.readouterr().out)
    sha = json.loads((out / "run.json").read_text())["weights_sha256"]
    assert document["weights_sha256"] == sha


def test_under_torchrun_it_joins_the_world_it_finds(tmp_path: Path, monkeypatch, capfd):
    short = ["train", "digits", *TINY, "--exact", "--max-steps", "8"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["-m", "lockstep", *short, "--out", str(tmp_path / "joined")]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    assert lockstep(monkeypatch, *short, "--out", str(tmp_path / "alone")) == 0
    shas = [
        json.loads((tmp_path / name / "run.json").read_text())["weights_sha256"]
        for name in ("joined", "alone")
    ]
    assert shas[0] == shas[1]
    assert done.stdout.count("samples/s") >= 1
