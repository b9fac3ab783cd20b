"""A program resumes where it stopped, on any number of replicas, and only if it is the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockstep.engine.run.receipts import read
from lockstep.errors import FolderError, LockstepError, ReplicaDied
from programs import HEAD, PLAIN, Heard, killed_after, run, written

SCHEDULED = """
with lockstep.Loop(global_batch=16, exact=True, log_every=2) as loop:
    model = loop.model(Net())
    optimizer = loop.optimizer(torch.optim.AdamW(model.parameters(), lr=1e-2))
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    cosine = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3)
    steps = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5])
    loop.keep(plateau=plateau, cosine=cosine, steps=steps)
    batches = loop.batches(DATA)
    def loss(batch):
        x, y = batch
        x = x + 0.1 * torch.randn_like(x) + random.random() + numpy.random.rand()
        return F.cross_entropy(model(x), y, reduction="sum"), len(y), {"right": len(y)}
    for epoch in loop.epochs(3):
        for batch in batches:
            loop.step(batch, loss, optimizer)
            cosine.step()
            steps.step()
            with torch.no_grad():
                model.b.bias.add_(0.01 * torch.randn(3))
        def measure(batch):
            return {"off": F.cross_entropy(model(batch[0]), batch[1], reduction="none")}
        found = loop.evaluate(DATA, measure)
        plateau.step(found["off"])
"""


@pytest.mark.parametrize(
    ("step", "then"),
    [
        (7, 4),
        (8, 1),
        *(pytest.param(*p, marks=pytest.mark.slow) for p in [(10, 2), (11, 1), (13, 4)]),
    ],
)
def test_a_killed_program_continues_elsewhere_as_if_nothing_had_happened(
    step: int, then: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = written(tmp_path, SCHEDULED)
    whole = run(path, tmp_path / "whole")
    revive = killed_after(monkeypatch, step)
    out = tmp_path / "killed"
    with pytest.raises(ReplicaDied):
        run(path, out, 2, checkpoint_every=3)
    revive()
    found = run(path, out, then, resume=True, checkpoint_every=3)
    assert found["weights_sha256"] == whole["weights_sha256"]
    assert found["metrics"] == whole["metrics"]
    assert read(out / "receipts.bin") == read(tmp_path / "whole" / "receipts.bin")
    lines = [
        [(r["kind"], r["step"], r.get("loss"), r.get("right"), r.get("off")) for r in records]
        for records in (logged(out), logged(tmp_path / "whole"))
    ]
    assert lines[0] == lines[1]


def logged(out: Path) -> list[dict[str, object]]:
    from lockstep.engine.run.run_folder import RunFolder

    return RunFolder(out).metrics()


@pytest.mark.parametrize("when", ["evaluation", "after the epoch"])
def test_a_program_that_fails_after_an_epoch_does_not_lose_it(when: str, tmp_path: Path):
    fails = (
        "raise KeyError(epoch)"
        if when == "after the epoch"
        else "loop.evaluate(DATA, lambda b: b.x)"
    )
    body = f"{PLAIN}        if not loop.settings.resume: {fails}\n"
    path = written(tmp_path, body)
    whole = run(written(tmp_path, PLAIN), tmp_path / "whole")
    path = written(tmp_path, body)
    out = tmp_path / "out"
    with pytest.raises(LockstepError):
        run(path, out)
    found = run(path, out, 2, resume=True)
    assert found["weights_sha256"] == whole["weights_sha256"]


OTHER = {
    "the loss": ('reduction="sum"), len(y)', 'reduction="sum"), 2 * len(y)', "loss of adamw"),
    "the model": ("self.b(", "2 * self.b(", "model net"),
    "the data": ("DATA = list(zip(X, Y))", "DATA = list(zip(X, Y))[:-1]", "samples of data set 0"),
    "a sample": ("DATA = list(zip(X, Y))", "DATA = list(zip(X + 1, Y))", "first samples"),
    "the batch": ("global_batch=16", "global_batch=32", "global_batch was 16, now 32"),
    "the optimizer": ("AdamW(model", "SGD(model", "optimizers differ: adamw, sgd"),
    "a scheduler": ("batches =", "loop.keep(s=optimizer); batches =", "kept differ: s"),
    "another data set": ("batches =", "loop.batches(DATA); batches =", "it read 1 data"),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHER)
def test_another_program_is_not_resumed(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    old, new, message = OTHER[case]
    program = HEAD + PLAIN
    assert old in program
    revive = killed_after(monkeypatch, 4)
    with pytest.raises(ReplicaDied):
        run(written(tmp_path, program, ""), tmp_path / "out", checkpoint_every=3)
    revive()
    path = written(tmp_path, program.replace(old, new), "")
    with pytest.raises(FolderError, match="another program") as caught:
        run(path, tmp_path / "out", resume=True)
    assert message in str(caught.value)


def test_a_lambda_of_the_same_name_is_another_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lambda_ = "lambda b: (F.cross_entropy(model(b[0]), b[1], reduction='sum'), {})"
    body = PLAIN.replace("loop.step(batch, loss,", f"loop.step(batch, {lambda_},")
    revive = killed_after(monkeypatch, 4)
    with pytest.raises(ReplicaDied):
        run(
            written(tmp_path, body.replace("{}", "len(b[1])")), tmp_path / "out", checkpoint_every=3
        )
    revive()
    path = written(tmp_path, body.replace("{}", "2 * len(b[1])"))
    with pytest.raises(FolderError, match=r"loss of adamw: <lambda> \(line"):
        run(path, tmp_path / "out", resume=True)


def test_moved_lines_and_comments_are_the_same_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    revive = killed_after(monkeypatch, 4)
    with pytest.raises(ReplicaDied):
        run(written(tmp_path, PLAIN), tmp_path / "out", checkpoint_every=3)
    revive()
    edited = PLAIN.replace("    def loss", "\n    # The mean over the samples.\n    def loss")
    run(written(tmp_path, edited), tmp_path / "out", resume=True)


STATEFUL = """
class Stream:
    def __init__(self):
        self.generator = random.Random(0)
    def __iter__(self):
        order = list(range(70))
        self.generator.shuffle(order)
        return iter([DATA[n] for n in order])
"""


def test_a_stream_with_a_state_of_its_own_is_not_resumed_in_another_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = written(tmp_path, PLAIN.replace("(DATA)", "(Stream())"), HEAD + STATEFUL)
    revive = killed_after(monkeypatch, 8)
    with pytest.raises(ReplicaDied):
        run(path, tmp_path / "out", checkpoint_every=7, check_every=0)
    revive()
    with pytest.raises(LockstepError, match="begins epoch 1 with a different sample"):
        run(path, tmp_path / "out", resume=True, check_every=0)


def test_a_finished_run_is_not_resumed(tmp_path: Path):
    path = written(tmp_path, PLAIN)
    run(path, tmp_path / "out")
    with pytest.raises(FolderError, match="is finished"):
        run(path, tmp_path / "out", resume=True)


BREAKS = PLAIN.replace(
    "            loop.step(batch, loss, optimizer)",
    "            loop.step(batch, loss, optimizer)\n            if batch.number >= 2: break",
)


@pytest.mark.parametrize("resumed", [1, 2])
def test_an_epoch_that_is_left_by_break_is_over_also_after_a_resume(resumed: int, tmp_path: Path):
    path = written(tmp_path, BREAKS)
    whole = run(path, tmp_path / "whole")
    assert whole["steps"] == 6
    # One checkpoint after each epoch, as without break.
    assert len(list((tmp_path / "whole" / "checkpoints").glob("*.safetensors"))) == 2
    run(path, tmp_path / "cut", max_steps=3)
    ended = run(path, tmp_path / "cut", resumed, resume=True)
    assert ended["weights_sha256"] == whole["weights_sha256"]
    assert ended["steps"] == 6


PHASES = (
    PLAIN
    + """
    said = []
    for epoch in loop.epochs(1):
        said.append(epoch)
        for batch in batches:
            loop.step(batch, loss, optimizer)
    loop.log(phases=float(sum(said)))
"""
)


def test_a_program_trains_in_two_phases(tmp_path: Path):
    path = written(tmp_path, PHASES)
    whole = run(path, tmp_path / "whole")
    assert whole["epochs"] == 3
    run(path, tmp_path / "cut", max_steps=12)
    ended = run(path, tmp_path / "cut", 2, resume=True)
    assert ended["weights_sha256"] == whole["weights_sha256"]


TEACHER = PLAIN.replace("batches =", "teacher = {copy}; batches =").replace(
    "F.cross_entropy(model(x), y", "F.cross_entropy(model(x) + teacher(x).detach(), y"
)


@pytest.mark.parametrize(
    "copy",
    [
        "copy.deepcopy(model)",
        "loop.model(copy.deepcopy(model), 'teacher')",
        "loop.model(torch.optim.swa_utils.AveragedModel(model), 'teacher')",
    ],
)
def test_a_copy_of_a_model_works_on_the_same_shards(copy: str, tmp_path: Path):
    path = written(tmp_path, TEACHER.format(copy=copy), "import copy\n" + HEAD)
    runs = [run(path, tmp_path / str(n), n)["weights_sha256"] for n in (1, 2)]
    assert runs[0] == runs[1]


def test_a_scheduler_that_nobody_keeps_is_pointed_out(tmp_path: Path):
    scheduler = "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2); batches ="
    plain = PLAIN.replace("batches =", scheduler)
    run(written(tmp_path, plain), tmp_path / "a", console=Heard(tmp_path / "heard"))
    assert "no checkpoint holds it" in (tmp_path / "heard").read_text()
    kept = plain.replace("; batches =", "; loop.keep(scheduler=scheduler); batches =")
    kept = kept.replace("DATA", "DATA[:64]")
    run(written(tmp_path, kept), tmp_path / "b", console=Heard(tmp_path / "quiet"))
    assert not (tmp_path / "quiet").exists()


def test_an_evaluation_in_the_body_belongs_to_the_step_before_it(tmp_path: Path):
    measure = "lambda b: {'n': b[1].float()}"
    body = PLAIN + f"            float(loop.evaluate(DATA, {measure})['n'])\n"
    run(written(tmp_path, body), tmp_path / "out", max_steps=2)
    lines = list(map(json.loads, (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()))
    assert [line["step"] for line in lines if line["kind"] == "test"] == [1, 2]


def test_an_optimizer_without_a_rate_is_logged(tmp_path: Path):
    body = PLAIN.replace(
        "torch.optim.AdamW(model.parameters(), lr=1e-2)", "Rateless(model.parameters(), {})"
    )
    head = (
        HEAD
        + """
class Rateless(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad, alpha=0.1)
"""
    )
    assert run(written(tmp_path, body, head), tmp_path / "out")["status"] == "finished"
