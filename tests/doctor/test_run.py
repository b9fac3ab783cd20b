"""Running scripts: every bug is found where it is, and a correct script is left alone."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.doctor import RULES
from lockstep.doctor.facts import facts, frames
from lockstep.doctor.registry import watchers
from lockstep.doctor.run import Examination, examine

CASES = Path(__file__).parent.parent / "cases" / "doctor_run"
BAD, GOOD = sorted(CASES.rglob("bad_*.py")), sorted(CASES.rglob("good_*.py"))
FRESH = {"good_by_hand.py", "good_imagenet_example.py"}
"""Scripts that start their ranks in new interpreters: `make test` takes the bad one alone."""
MARK = re.compile(r"#\s*(not )?(LS\d\d(?:[, ]+LS\d\d)*)")
BY_ORACLE = {"LS17", "LS18", "LS31", "LS32"}


def name_of(path: Path) -> str:
    return str(path.relative_to(CASES))


def marks(path: Path, kind: str = "bad") -> set[tuple[int, str]]:
    """Return (line, code) of every mark: expected findings, or near misses in a good case."""
    found = set()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        mark = MARK.search(line)
        if mark is not None and bool(mark[1]) == (kind == "good"):
            found |= {(number, code) for code in re.findall(r"LS\d\d", mark[2])}
    return found


def run(script: Path, **options: Any) -> SimpleNamespace:
    """Run a script from an empty folder; return its findings, facts and output."""
    with TemporaryDirectory() as notes, TemporaryDirectory() as place, chdir(place):
        examined = examine(Examination(script=script, **options), Path(notes), RULES)
        return SimpleNamespace(
            found={(f.line, f.rule.code) for f in examined.findings},
            messages=[f"{f.line} {f.rule.code} {f.message}" for f in examined.findings],
            facts=facts(examined),
            trace=examined.trace,
            words=[log.read_text() for log in examined.trace.outcome.logs],
            left={str(path.relative_to(place)) for path in Path(place).rglob("*")},
        )


@cache
def ran(path: Path) -> SimpleNamespace:
    """Run a case once, and keep the result."""
    wanted = {code for _, code in marks(path)}
    starts_itself, resumes = "mp.spawn(" in path.read_text(), "--resume" in path.read_text()
    return run(
        path,
        starts_itself=starts_itself,
        resume=("--resume",) if resumes else None,
        gpus=2 if "cuda" in path.read_text() else None,
        # The oracle costs a run and cannot judge scripts that always start two ranks.
        oracle=not starts_itself and not resumes and (not wanted or bool(wanted & BY_ORACLE)),
    )


@pytest.mark.parametrize("path", BAD, ids=name_of)
def test_a_bug_is_seen_where_it_is_and_nothing_else(path: Path):
    assert ran(path).found == marks(path), ran(path).messages


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=pytest.mark.slow) if p.name in FRESH else p for p in GOOD],
    ids=name_of,
)
def test_a_correct_script_is_left_alone(path: Path):
    # On a busy machine, any script may wait for its data.
    about_waiting = any(code == "LS30" for _, code in marks(path, "good"))
    assert [m for m in ran(path).messages if about_waiting or " LS30 " not in m] == []
    assert ran(path).facts["ended"] == "finished", ran(path).facts["last_words"]


@pytest.mark.parametrize("name", ["good_autocast.py", "good_fixed_batch.py"])
def test_the_gradient_of_a_correct_script_is_that_of_one_process(name: str):
    assert ran(CASES / "quiet" / name).facts["oracle"]["verdict"] == "agrees"


def test_every_rule_has_scripts_in_which_it_fires_and_in_which_it_could():
    codes = {rule.code for rule in RULES if rule.name in watchers()}
    assert codes <= {code for path in BAD for _, code in marks(path)}
    assert codes <= {code for path in GOOD for _, code in marks(path, "good")}


# --- scripts as they come ---

START = """
import sys, time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    x = torch.randn(64, 6)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 4, sampler=sampler)
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.25), nn.Linear(8, 1))
    model = DDP(net)
    torch.manual_seed(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def step(inputs, targets):
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a script: a common start, then the given body."""

    def write(body: str, start: str = START) -> Path:
        folder = tmp_path / "project"
        folder.mkdir()
        path = folder / "train.py"
        path.write_text(start + body)
        return path

    return write


def test_losses_are_those_of_a_run_without_probes_to_the_bit(written):
    script = written("""
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            print(step(inputs, targets).hex())
    sys.exit(0)

main()
""")
    watched = run(script)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29731",
        "WORLD_SIZE": "2",
    }
    plain = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env={**environment, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(2)
    ]
    assert [process.communicate()[0] for process in plain] == watched.words
    assert len(watched.words[0].split()) == 16
    assert (watched.facts["ended"], watched.messages) == ("finished", [])
    assert os.listdir(script.parent) == [script.name]
    assert watched.left == set()


def test_four_ranks_have_the_gradient_of_one_with_batch_norm_and_dropout(written):
    script = written("""
    for inputs, targets in loader:
        step(inputs, targets)

main()
""")
    result = run(script, replicas=4, steps=2)
    assert result.facts["oracle"]["verdict"] == "agrees", result.facts["oracle"]
    assert result.facts["oracle"]["by_rank"] == ["batch norm", "dropout"]
    assert (result.facts["ranks"], result.facts["steps"]) == (4, 2)
    assert result.messages == []


def test_the_step_that_is_compared_has_all_digits_and_those_after_it_what_the_script_wants(written):
    script = written("""
    torch.backends.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("high")
    for inputs, targets in loader:
        places = (torch.backends.cudnn.conv, torch.backends.cuda.matmul)
        print(*(place.fp32_precision for place in places))
        step(inputs, targets)
    print(torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision())

main()
""")
    lines = run(script).words[0].splitlines()
    assert lines == ["ieee ieee", *["tf32 tf32"] * 7, "True high"]


CHAOS = """
    class Chaos(nn.Module):
        def forward(self, x):
            x = torch.sigmoid(x)
            for _ in range(20):
                x = 3.9 * x * (1 - x)
            return x

    model = DDP(nn.Sequential(nn.Linear(6, 8), Chaos(), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for inputs, targets in {batches}:
        size = len(inputs) + 1.7  # on one rank the batch is larger, and this rounds otherwise
        loss = {factor} * nn.functional.mse_loss(model(inputs * size / size), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

main()
"""


@pytest.mark.parametrize("batches", ["loader", "[next(iter(loader))]"])
def test_a_difference_that_rounding_of_the_weights_explains_is_no_bug(written, batches: str):
    right = written(CHAOS.format(batches=batches, factor="1"))
    oracle = run(right, steps=3).facts["oracle"]
    if batches == "loader":
        assert oracle["verdict"] == "agrees", oracle
        assert 3.5e-4 < oracle["worst"] < oracle["tolerance"] < 0.1
    else:
        assert oracle["verdict"] == "differs"  # there is no second step to measure rounding with
    wrong = right.with_name("wrong.py")
    wrong.write_text(right.read_text().replace("1 * nn", "(1.1 if len(inputs) == 4 else 1) * nn"))
    oracle = run(wrong, steps=3).facts["oracle"]
    assert oracle["verdict"] == "differs"
    assert oracle["ratio"] == pytest.approx(1.1, abs=0.02)


def test_batches_that_cannot_be_kept_leave_the_script_alone_and_give_no_verdict(written):
    script = written("""
    class Batch:
        def __init__(self, rows):
            self.inputs, self.targets = map(torch.stack, zip(*rows))

    for batch in DataLoader(data, 4, sampler=sampler, collate_fn=Batch):
        step(batch.inputs, batch.targets)

main()
""")
    result = run(script, steps=2)
    assert result.facts["ended"] == "finished"
    assert result.facts["oracle"]["verdict"] == "impossible"
    assert result.facts["oracle"]["why"].startswith("its batches cannot be kept: ")
    assert result.messages == []


def test_a_step_that_a_scaler_leaves_out_is_no_part_of_the_next(written):
    script = written("""
    scaler = torch.amp.GradScaler("cpu")
    for number, (inputs, targets) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        scaler.scale(loss if number else loss * float("inf")).backward()
        scaler.step(optimizer)
        scaler.update()

main()
""")
    result = run(script, oracle=False)
    assert (result.facts["steps"], result.facts["global_batch"]) == (7, 8)
    assert result.messages == []


def test_steps_end_a_script_that_would_go_on_for_ever_and_batches_cut_its_passes(written):
    script = written("""
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        epoch += 1
        for inputs, targets in loader:
            step(inputs, targets)

main()
""")
    result = run(script, steps=5, batches=2, oracle=False)
    assert result.facts["ended"] == "finished"
    assert result.facts["steps"] == 5
    assert [one["samples"] for one in result.facts["passes"]] == [[8, 8]] * 3
    assert result.messages == []


def test_the_report_on_a_hang_shows_where_each_rank_is(written):
    script = written("""
    for inputs, targets in loader:
        step(inputs, targets)
    if rank == 0:
        alone()
    while not Path("never").exists():
        time.sleep(0.2)

def alone():
    dist.all_reduce(torch.ones(3))  # here

main()
""")
    line = next(n for n, text in enumerate(script.read_text().splitlines(), 1) if "# here" in text)
    result = run(script, timeout=5, oracle=False)
    assert result.facts["ended"] == "hung"
    assert result.found == {(line, "LS29")}
    first, second = sorted(result.facts["stuck"], key=lambda one: one["rank"])
    assert (first["rank"], second["rank"]) == (0, 1)
    assert first["doing"].startswith("all_reduce at")
    assert first["last_collective"].endswith(f"train.py:{line}")
    assert second["last_collective"] is None
    assert any(frame.endswith(f"train.py:{line} in alone") for frame in first["stack"])
    assert first["stack"][-1].endswith("in <module>")
    assert any(frame.endswith("in main") for frame in second["stack"])


def test_a_rank_that_leaves_the_loop_alone_is_reported_where_the_other_waits(written):
    script = written("""
    for number, (inputs, targets) in enumerate(loader):
        step(inputs, targets)
        if rank == 1 and number == 3:
            break
    while not Path("never").exists():
        time.sleep(0.2)

main()
""")
    line = next(n for n, t in enumerate(script.read_text().splitlines(), 1) if "model(inputs)" in t)
    result = run(script, timeout=4, oracle=False)
    assert result.facts["ended"] == "hung"
    assert result.found == {(line, "LS29")}


def test_a_rank_that_fails_is_quoted_and_the_waiting_ranks_are_not_blamed(written):
    script = written("""
    for number, (inputs, targets) in enumerate(loader):
        if number == 3 and rank == 1:
            raise ValueError("the third batch is bad")
        step(inputs, targets)
        dist.barrier()

main()
""")
    result = run(script, oracle=False)
    assert result.facts["ended"] == "crashed"
    assert "ValueError: the third batch is bad" in result.facts["last_words"][-1]
    assert result.messages == []


def test_ranks_that_the_script_forks_are_seen(written):
    script = written("""
    for inputs, targets in loader:
        step(inputs, targets)

def worker(rank):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    main()

import multiprocessing, os
processes = [multiprocessing.get_context("fork").Process(target=worker, args=(r,)) for r in (0, 1)]
for process in processes:
    process.start()
for process in processes:
    process.join()
""")
    result = run(script, starts_itself=True, oracle=False)
    assert result.facts["ended"] == "finished"
    assert (result.facts["ranks"], result.facts["steps"]) == (2, 8)
    assert result.facts["passes"][0]["complete"]
    assert result.messages == []


def test_a_comment_in_the_line_silences_a_finding(tmp_path):
    path = tmp_path / "train.py"
    text = (CASES / "replicas_drift" / "bad_no_ddp.py").read_text()
    # A form feed ends no line.
    path.write_text("\f\n" + text.replace("# LS31", "# lockstep: ignore[replicas_drift]"))
    result = run(path, oracle=False)
    assert result.facts["drift"]["parameters_differ_after_step"] == 1
    assert result.messages == []


ASKS = """
import argparse, sys
parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
sys.exit(int(parser.parse_args().data))
"""
LEAVES = """
import fcntl, subprocess, sys
from pathlib import Path
lock = Path(__file__).with_name("lock").open("w")
fcntl.flock(lock, fcntl.LOCK_SH)
code = "import pathlib, time; time.sleep(60); pathlib.Path('survived').touch()"
subprocess.Popen([sys.executable, "-c", code], pass_fds=[lock.fileno()], cwd=sys.path[0])
"""


@pytest.mark.parametrize(
    ("text", "arguments", "ended", "word"),
    [
        ("print('a script that trains nowhere')", (), "finished", None),
        ("input('Which GPU? ')", (), "crashed", "EOFError"),
        (ASKS, (), "crashed", "required: --data"),
        (ASKS, ("--data", "3"), "crashed", None),
        (ASKS, ("--data", "0"), "finished", None),
    ],
)
def test_a_script_that_never_trains(written, text, arguments, ended, word):
    result = run(written(text, start=""), arguments=arguments)
    assert result.facts["ended"] == ended
    assert not result.trace.ranks
    assert result.messages == []
    assert word is None or word in result.facts["last_words"][-1]


def test_processes_that_a_script_starts_end_with_it(written):
    script = written(LEAVES, start="")
    result = run(script)
    assert result.facts["ended"] == "finished"
    with script.with_name("lock").open() as lock:
        # The lock is free when all processes are gone.
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert not script.with_name("survived").exists()


def test_a_dump_of_several_threads_is_read_for_its_main_one():
    stack = """Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f02 (most recent call first):
  File "/home/me/train.py", line 12 in step
  File "/home/me/train.py", line 30 in <module>
"""
    assert frames(stack) == ["/home/me/train.py:12 in step", "/home/me/train.py:30 in <module>"]
