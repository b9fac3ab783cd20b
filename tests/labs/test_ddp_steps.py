"""Lab 2's steps, judged by the doctor on two real processes. Every program is run once."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from lockstep.labs.lab2_ddp import observe as observing
from lockstep.labs.lab2_ddp.diff import diff, shown
from lockstep.labs.lab2_ddp.files import program
from lockstep.labs.lab2_ddp.observe import Observed, observe
from lockstep.labs.lab2_ddp.steps import Step, steps
from lockstep.labs.lab2_ddp.tasks import check_step, judge, latest, passed_before, task

pytestmark = pytest.mark.xdist_group("steps")
STEPS = {step.name: step for step in steps()}
REMOVED = {
    "group": "it formed no process group",
    # By both, or one of them found what the other had written, all of it or half.
    "prepare": "Let local rank 0 make it",
    "device": "All ranks send their models to cuda:0",
    "sampler": "LS02 missing_sampler",
    "epoch": "LS01 missing_set_epoch",
    "batch": "LS22 unscaled_learning_rate",
    "wrap": "LS31 replicas_drift",
    "norm": "2 batch-norm layers see only the 16 samples",
    "seed": "LS20 same_seed",
    "validate": "Each rank evaluates all 25 test images",
    "throughput": "Rank 0 printed 64 images for an epoch, but all ranks together took 128",
    "first": "LS25 every_rank_saves",
    "program": "The process group stays open",
}
"""What is said of the program before each step."""


def some(fast: set[str]) -> list[Any]:
    """Return all steps, of which `make test` takes a few."""
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in STEPS]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is taken for a hang because the machine is busy."""
    monkeypatch.setattr(observing, "LIMIT", 600.0)
    monkeypatch.setattr(observing, "PATIENCE", 90.0)


@cache
def seen(text: str, prepared: bool, whole: bool) -> Observed:
    return observe(text, prepared=prepared, whole=whole)


def before(step: Step) -> Observed:
    """The program before a step: the one that the step before it ends with."""
    return seen(step.before, step.prepared, False)


def after(step: Step) -> Observed:
    return seen(step.after, step.prepared, step.whole)


def changed(name: str, old: str, new: str) -> str:
    """The program after a step, with a mistake in it."""
    text = STEPS[name].after
    assert text.count(old) == 1
    return text.replace(old, new)


@pytest.mark.parametrize("name", some({"group", "sampler", "wrap", "validate"}))
def test_the_check_of_an_unchanged_program_names_the_topic_of_the_step(name):
    said = judge(STEPS[name], before(STEPS[name]))
    assert any(REMOVED[name] in one for one in said), said


@pytest.mark.parametrize("name", some({"group", "norm", "wrap"}))
def test_the_program_after_a_step_passes_it(name):
    assert judge(STEPS[name], after(STEPS[name])) == []


def test_a_step_requires_earlier_steps_and_not_later_ones():
    found = after(STEPS["wrap"])
    assert {"LS20", "LS25"} <= {finding["code"] for finding in found.findings}
    assert judge(STEPS["wrap"], found) == []
    said = judge(STEPS["first"], found)
    assert any("LS20 same_seed" in one and "This belongs to an earlier step" in one for one in said)
    assert any(one.startswith("From the earlier step “Throughput") for one in said)
    assert not any("batch-norm" in one for one in said)  # that step may be left out


@pytest.mark.parametrize("half", [True, False])
def test_a_file_that_the_other_rank_does_not_wait_for_is_reported(half: bool):
    hurried = changed(
        "group",
        '    if not Path("prepared.pt").exists():\n        prepare()\n',
        "    if rank == 0:\n"
        + ('        Path("prepared.pt").write_bytes(b"")\n        time.sleep(60)\n' if half else "")
        + '        prepare()\n        Path("ready").touch()\n'
        f'    while not Path("{"prepared.pt" if half else "ready"}").exists():\n'
        "        time.sleep(0.01)\n",
    )
    said = check_step(STEPS["prepare"], hurried)
    assert said[0].startswith("The script failed.") == half, said
    assert "Rank 0 writes prepared.pt, but the other ranks do not wait" in said[half]


def test_an_average_of_accuracies_is_no_accuracy():
    averaged = changed(
        "validate",
        "    counts = torch.tensor([correct, total], device=device)\n"
        "    dist.all_reduce(counts)\n"
        "    correct, total = counts.tolist()\n"
        "    return correct / total\n",
        "    mean = torch.tensor(correct / total, device=device)\n"
        "    dist.all_reduce(mean)\n"
        "    return mean.item() / dist.get_world_size()\n",
    )
    (said,) = check_step(STEPS["validate"], averaged)
    assert "is not that of 25 test images" in said
    assert "a mean of the ranks' means" in said


def test_a_sampler_that_repeats_test_images_is_reported():
    padded = changed(
        "validate",
        "    test_part = Subset(test_data, range(rank, len(test_data), world_size))\n"
        "    test_loader = DataLoader(test_part, batch_size=100)\n",
        "    shares = DistributedSampler(test_data, shuffle=False)\n"
        "    test_loader = DataLoader(test_data, batch_size=100, sampler=shares)\n",
    )
    said = check_step(STEPS["validate"], padded)
    assert any("LS06 padded_validation" in one for one in said)


def test_a_barrier_that_only_one_rank_reaches_is_reported():
    alone = changed(
        "first",
        '        torch.save(model.module.state_dict(), "model.pt")\n',
        '        torch.save(model.module.state_dict(), "model.pt")\n        dist.barrier()\n',
    )
    said = check_step(STEPS["first"], alone)
    # Rank 0 waits until rank 1 has ended: then it fails, or is ended.
    assert said[0].startswith(("The script failed.", "The run hung"))
    assert any("LS29 collective_in_branch" in one and "This is new" in one for one in said)


@pytest.mark.slow
def test_a_hang_is_reported_with_its_place(monkeypatch):
    monkeypatch.setattr(observing, "PATIENCE", 12.0)
    stuck = changed(
        "prepare",
        "    dist.barrier()\n",
        '    while local_rank and not Path("ready").exists():\n        time.sleep(0.1)\n',
    )
    said = check_step(STEPS["prepare"], stuck)
    assert said[0].startswith("The run hung and was ended. Where each rank was:")
    assert re.search(r"rank 1: .*\n +train.py:\d+ in main\n", said[0])


def test_a_crash_is_reported_with_its_last_output():
    broken = changed("group", "rank, world_size =", "rank, world_size, more =")
    (said,) = check_step(STEPS["group"], broken)
    assert said.startswith("The script failed. Last output:")
    assert "ValueError: not enough values to unpack" in said


def test_a_text_that_is_no_python_is_not_run(monkeypatch):
    monkeypatch.setattr(observing, "apart", lambda *_, **__: pytest.fail("it was run"))
    assert check_step(STEPS["group"], "import torch\ndef main(:\n") == [
        "Line 2: this is not Python: invalid syntax."
    ]


def test_a_program_that_never_ends_is_ended(monkeypatch):
    monkeypatch.setattr(observing, "LIMIT", 6.0)
    (said,) = check_step(STEPS["group"], "while True:\n    pass\n")
    assert "The lab stopped the program, which was still busy after 6 seconds." in said


def test_steps_follow_from_each_other():
    text = program()
    for step in steps():
        assert step.before == text
        assert step.after != text
        assert step.title
        assert step.task.endswith(".")
        assert step.why.endswith(".")
        text = step.after
    assert "dist.destroy_process_group()" in text


def test_a_task_goes_on_with_the_learners_own_program():
    own = program().replace("handwritten digits", "digits")
    tried = {"group": {"text": own, "passed": "2026-01-01"}, "prepare": {"text": "x"}}
    assert passed_before(STEPS["prepare"], tried) == own
    assert passed_before(STEPS["sampler"], tried) == own
    assert passed_before(STEPS["group"], tried) is None
    assert latest(tried) == own
    assert latest({}) == program()
    assert task(STEPS["prepare"], own).starter == own
    assert task(STEPS["prepare"]).starter == STEPS["prepare"].before


def test_a_difference_is_shown_with_its_signs_escaped():
    html = shown(diff("a = 1\nif a < 2:\n", "a = 1\nif a < 3:\n"))
    assert html.count("<span") == 4
    assert "-if a &lt; 2:" in html
    assert "+if a &lt; 3:" in html
    assert diff("a\n", "a\n") == ""
