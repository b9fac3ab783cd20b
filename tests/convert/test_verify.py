"""Pairs of scripts: verify proves the right ones and explains the mistakes of the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from lockstep.console import Progress
from lockstep.convert.verify import Comparison, Verdict, verify
from lockstep.convert.verify.comparison import UNKNOWN, compare
from lockstep.convert.verify.printed_lines import differing
from lockstep.convert.verify.proof import Proof, examination
from lockstep.convert.verify.rounding_bounds import Bounds
from lockstep.convert.verify.runs import CROWD, Plan, Run, asked_for, furnish
from lockstep.probes.run_script import Outcome
from lockstep.probes.trace import Event, Rank, Trace
from torchvision_folder import FOLDER

CASES = Path(__file__).parent.parent / "cases" / "convert_verify"


@pytest.fixture(scope="module")
def proof() -> Iterator[Callable[[str], Proof]]:
    """The original of a case, run once for all results that are compared with it."""
    with TemporaryDirectory() as folder:

        @cache
        def of(case: str) -> Proof:
            home = CASES / case
            (Path(folder) / case).mkdir()
            plan = Plan(
                folder=Path(folder) / case,
                home=home,
                name="before.py",
                working=home,
                arguments=(),
                steps=6,
                timeout=300.0,
                early=(),
            )
            return Proof(plan, home / "before.py", Progress())

        yield of


@pytest.fixture
def judged(proof) -> Callable[..., list[Comparison]]:
    """The result of a case beside its original, on some numbers of ranks."""

    def judge(case: str, result: str, *replicas: int) -> list[Comparison]:
        verdict = proof(case).of(CASES / case / f"{result}.py", replicas, doctor=False)
        assert not verdict.failure, verdict.log
        return verdict.comparisons

    return judge


@pytest.fixture(scope="module")
def whole() -> Iterator[Proof]:
    """A short program as the original of a conversion, run to its end."""
    yield from converted(CASES / "whole_run")


@pytest.fixture(scope="module")
def resumes() -> Iterator[Proof]:
    """A program that resumes from its checkpoint."""
    yield from converted(CASES / "resume")


def converted(home: Path) -> Iterator[Proof]:
    with TemporaryDirectory() as folder:
        plan = Plan(
            folder=Path(folder).resolve(),
            home=home,
            name="before.py",
            working=home,
            arguments=(),
            steps=6,
            timeout=300.0,
            early=(),
            converted=True,
            further=18,
        )
        yield Proof(plan, home / "before.py", Progress())


def texts(found: list[Comparison]) -> list[str]:
    return [one.text + one.log for one in found if one.status != "equal"]


# --- the whole run of a conversion ---


def test_a_short_program_is_compared_to_its_end(whole: Proof) -> None:
    assert whole.plan.further == 18
    verdict = whole.of(CASES / "whole_run" / "after.py", (1, 2, 4), doctor=False)
    assert verdict.proved, texts(verdict.comparisons)
    assert [event["text"] for event in whole.original.first.of("line")][-1].startswith("test")
    assert set(whole.original.files) == {"log.csv", "last.pt"}
    assert "net.weight" in whole.original.files["last.pt"]["names"]


@pytest.mark.parametrize(
    ("right", "wrong", "where", "why"),
    [
        (
            "if rank == 0:\n    torch.save(",
            "if True:\n    torch.save(",
            "the file last.pt",
            "ranks 0 and 1 write it.",
        ),
        (
            "if rank == 0:\n    torch.save(",
            "if rank == 2:\n    torch.save(",
            "the file last.pt",
            "the result does not write it.",
        ),
        (
            '"net": model.state_dict()',
            '"net": ddp.state_dict()',
            "the file last.pt",
            "only that of the original holds net.bias.",
        ),
        (
            "(model(x[64:]).argmax(1) == y[64:])",
            "(model(x[64 + rank :: size]).argmax(1) == y[64 + rank :: size])",
            "the evaluation",
            "the original prints ",
        ),
        (
            "lr=0.1)",
            "lr=0.1, momentum=1e-9 * rank)",
            "what the optimizer keeps",
            "it is not the same on all ranks.",
        ),
    ],
    ids=["two write", "nobody writes", "other names", "part of the test", "own momentum"],
)
def test_what_weights_do_not_show_is_compared_too(
    whole: Proof, tmp_path: Path, right: str, wrong: str, where: str, why: str
) -> None:
    _, found = whole.on(changed("whole_run", right, wrong, tmp_path), 2)
    assert found.status == "differs"
    assert found.first is not None
    assert found.first.what == where
    assert found.reason.startswith(why)


def changed(case: str, right: str, wrong: str, folder: Path) -> Path:
    """The correct result of a case, with a mistake."""
    text = (CASES / case / "after.py").read_text()
    assert right in text
    path = folder / "after.py"
    path.write_text(text.replace(right, wrong))
    return path


def test_a_resume_from_the_checkpoint_of_the_result_is_compared(resumes: Proof) -> None:
    verdict = resumes.of(CASES / "resume" / "after.py", (1, 2), doctor=False)
    assert verdict.proved, texts(verdict.comparisons)
    assert [one.resumed for one in verdict.comparisons] == [False, False, True]
    assert (
        "2 ranks, resumed from a checkpoint of the result: equal in" in verdict.comparisons[2].text
    )


def test_a_resume_that_only_one_rank_makes_is_found(resumes: Proof, tmp_path: Path) -> None:
    right = '    opt.load_state_dict(ck["opt"])'
    wrong = f"    if rank == 0:\n    {right}"
    result = changed("resume", right, wrong, tmp_path)
    verdict = resumes.of(result, (2,), doctor=False)
    assert [one.status for one in verdict.comparisons] == ["equal", "differs"]
    assert verdict.comparisons[1].resumed
    assert not verdict.proved


# --- what is right ---


def test_a_classifier_is_proved_on_one_process_two_and_four_ranks_and_the_doctor_is_content(proof):
    case = CASES / "classification"
    verdict = proof("classification").of(case / "after.py", (1, 2, 4))
    assert verdict.proved, texts(verdict.comparisons)
    assert [one.steps for one in verdict.comparisons] == [6, 6, 6]
    assert verdict.comparisons[0].difference == 0.0
    assert 0 < verdict.comparisons[1].difference < verdict.comparisons[1].bound
    # Its own loss is printed by rank 0: that is no bug of the training.
    assert any("last loss" in note for note in verdict.comparisons[1].notes)
    assert "random numbers of the training: by sample" in verdict.neutralised
    assert {finding.path for finding in verdict.findings} <= {case / "after.py"}
    assert verdict.described()["proved"]


def test_a_summed_loss_that_is_multiplied_by_the_ranks_is_proved(judged):
    assert texts(judged("summed_loss", "after", 1, 2)) == []


def test_a_script_for_cuda_and_nccl_with_synchronised_batch_norm_is_proved(proof, judged):
    assert texts(judged("batch_norm", "after", 2)) == []
    verdict = proof("batch_norm").of(CASES / "batch_norm" / "after.py", (), doctor=False)
    assert "cuda" in verdict.fake_cuda
    assert not (CASES / "batch_norm" / "model.pt").exists()


def test_both_optimizers_of_a_gan_are_compared_and_its_noise_is_that_of_the_global_batch(judged):
    found = judged("gan", "after", 2)
    assert texts(found) == []
    assert found[0].steps == 12


def test_gradient_accumulation_is_proved(judged):
    assert texts(judged("accumulation", "after", 2)) == []


def test_batches_that_are_drawn_by_hand_are_cut_for_the_ranks(judged):
    assert texts(judged("drawn_batches", "after", 2)) == []


def test_weights_that_are_updated_by_hand_are_compared_after_every_update(proof):
    verdict = proof("by_hand").of(CASES / "by_hand" / "after.py", (1, 2))
    assert verdict.proved, (texts(verdict.comparisons), verdict.findings)
    assert [one.steps for one in verdict.comparisons] == [6, 6]
    assert "an update of the weights by hand counts as a step" in verdict.neutralised


def test_augmentation_in_workers_and_sequences_before_batches_are_proved(judged):
    assert texts(judged("augmentation", "after", 2)) == []
    assert not (CASES / "augmentation" / "numbers" / "done.txt").exists()


# --- what is wrong, and why ---


@pytest.mark.parametrize(
    ("case", "result", "step", "words"),
    [
        ("classification", "no_sampler", 1, "every rank takes the same samples"),
        ("classification", "no_set_epoch", 5, "in the order of the first"),
        ("classification", "scaled_rate", 1, "the learning rate of step 1 is 0.02"),
        ("classification", "wrong_validation", 4, 'the original prints "accuracy'),
        ("summed_loss", "not_scaled", 1, "the loss is 1/2 of the original's"),
        ("batch_norm", "local", 1, "1 batch norm layer(s) see only the batch of one rank"),
        ("by_hand", "not_wrapped", 1, "the ranks hold different weights"),
        ("drawn_batches", "not_divided", 1, "every rank makes a batch as large"),
    ],
)
def test_a_mistake_is_found_in_its_first_step_with_its_reason(judged, case, result, step, words):
    (found,) = judged(case, result, 2)
    assert found.status == "differs"
    assert words in found.reason
    assert found.first is not None
    assert found.first.step == step
    assert found.log == ""


def test_a_result_that_prints_other_words_alone_differs(judged):
    (found,) = judged("classification", "other_words", 1)
    assert found.status == "differs"
    assert "rank 0: accuracy" in found.reason


def test_a_result_that_crashes_has_failed_with_its_last_words(judged):
    (found,) = judged("classification", "crash", 2)
    assert found.status == "failed"
    assert "no attribute 'layers'" in found.log


# --- originals that cannot be run ---


def failing(folder: Path, source: str) -> Verdict:
    script = folder / "train.py"
    script.write_text(source)
    return verify(script, script, replicas=(2,), working=folder, timeout=300.0)


def test_an_original_that_crashes_is_a_verdict(tmp_path: Path):
    verdict = failing(tmp_path, "import torch\ntorch.load('missing.pt')\n")
    assert not verdict.proved
    assert "crashes" in verdict.failure
    assert "missing.pt" in verdict.log


def test_an_original_that_needs_arguments_says_so(tmp_path: Path):
    parser = "import argparse\np = argparse.ArgumentParser()\np.add_argument('data')\n"
    assert "needs arguments" in failing(tmp_path, f"{parser}p.parse_args()\n").failure


def test_an_original_that_trains_nothing_says_so(tmp_path: Path):
    verdict = failing(tmp_path, "import torch\nprint(torch.ones(2))\n")
    assert "no optimizer makes a step" in verdict.failure


def test_an_original_with_missing_imports_names_the_packages_to_install(tmp_path: Path):
    verdict = failing(tmp_path, "import torch\nimport nowhere.at.all\n")
    assert "it imports nowhere, which is not installed: pip install nowhere" in verdict.failure
    assert "nowhere" in verdict.log


def test_an_original_that_lacks_torchvision_says_how_to_keep_torch(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("PYTHONPATH", os.environ["PYTHONPATH"].replace(str(FOLDER), ""))
    verdict = failing(tmp_path, "import torch\nimport torchvision\n")
    assert "which is not installed: pip install --no-deps 'torchvision==0." in verdict.failure


def test_weights_that_never_change_prove_nothing(tmp_path: Path):
    verdict = failing(
        tmp_path,
        "import torch\n"
        "model = torch.nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for step in range(9):\n"
        "    optimizer.zero_grad()\n"
        "    model(torch.randn(8, 4)).softmax(1).mean().backward()\n"
        "    optimizer.step()\n",
    )
    assert not verdict.proved
    assert "in 6 steps the original never changes its weights" in verdict.failure


# --- parts ---


def test_the_doctor_watches_two_passes_and_no_more_steps_than_are_compared(tmp_path: Path):
    plan = Plan(
        folder=tmp_path,
        home=tmp_path,
        name="train.py",
        working=tmp_path,
        arguments=(),
        steps=6,
        timeout=60.0,
        early=(),
    )
    what = examination(plan, tmp_path / "train.py")
    assert (what.steps, what.batches) == (6, 3)


def said(*lines: tuple[str, bool]) -> Run:
    events = [{"kind": "line", "text": t, "step": 1, "evaluated": e} for t, e in lines]
    return Run(1, Trace([Rank(0, 1, events)], Outcome("finished", [0])), "")


def test_numbers_of_time_and_last_digits_may_differ_but_counts_and_words_may_not():
    theirs = said(("took 0.31 s, loss 0.5001", True), ("right 8/10", True), ("done", False))
    ours = said(("took 0.95 s, loss 0.5002", True), ("right 7/10", True), ("finished", False))
    found = [apart.text for apart in differing(theirs, [theirs], ours, exact=False)]
    assert found == [
        'the original prints "right 8/10", the result "right 7/10"',
        'the original prints "done", the result "finished"',
    ]
    alone = [apart.text for apart in differing(theirs, [theirs], ours, exact=True)]
    assert len(alone) == 3


def test_times_of_several_units_may_differ_and_the_numbers_beside_them_may_not():
    theirs = said(("[==>.] Step: 1s325ms | Tot: 25s106ms | Loss: 2.302 | 6/6", True))
    slower = said(("[==>.] Step: 980ms | Tot: 1m5s | Loss: 2.302 | 6/6", True))
    other = said(("[==>.] Step: 1s325ms | Tot: 25s106ms | Loss: 2.302 | 5/6", True))
    assert list(differing(theirs, [theirs], slower, exact=True)) == []
    assert len(list(differing(theirs, [theirs], other, exact=True))) == 1


def test_lines_that_differ_between_two_runs_of_the_original_are_ignored():
    theirs, again, ours = (said((f"process {n}", True)) for n in (40, 73, 99))
    assert list(differing(theirs, [again], ours, exact=True)) == []
    assert len(list(differing(theirs, [theirs], ours, exact=True))) == 1


def test_a_run_that_was_ended_while_it_left_has_crashed_if_its_last_words_are_an_error():
    outcome = Outcome("finished", [None])
    log = "    weights = torch.load(path)\nFileNotFoundError: weights.pt"
    assert Run(1, Trace([Rank(0, 1, [])], outcome), log).failure == "it crashes."
    assert "no optimizer" in Run(1, Trace([Rank(0, 1, [])], outcome), "done").failure


def test_a_run_may_come_to_a_kink_one_step_before_the_moved_one():
    def run(*gaps: float) -> Run:
        events: list[Event] = []
        for step, gap in enumerate(gaps):
            events.append({"kind": "loss", "value": 1.0 + gap})
            tensors = [["w", gap, 1e-9, gap]]
            events.append({"kind": "weights", "optimizer": 0, "step": step, "tensors": tensors})
        return Run(1, Trace([Rank(0, 1, events)], Outcome("finished", [0])), "")

    bounds = Bounds(run(0.0, 0.0, 0.0, 0.0, 0.0), run(1e-8, 1e-8, 1e-8, 1e-8, 1e-3))
    early, before, last = (bounds.weights(0, step, [1e-9])[0] for step in (2, 3, 4))
    assert early < 1e-6 < 1e-2 < before == last
    assert bounds.loss(2) < 1e-4 < bounds.loss(3) == bounds.loss(4)


def test_a_scratch_folder_has_small_files_as_copies_and_large_ones_as_links(tmp_path: Path):
    home, scratch = tmp_path / "home", tmp_path / "scratch"
    (home / "src" / "data").mkdir(parents=True)
    scratch.mkdir()
    (home / "src" / "data" / "small.txt").write_text("1")
    (home / "labels.txt").write_text("2")
    with (home / "large.bin").open("wb") as file:
        os.truncate(file.fileno(), 20_000_000)
    place = furnish(scratch, home / "src", home)
    assert place == scratch / "src"
    assert (place / "data" / "small.txt").read_text() == "1"
    assert (scratch / "large.bin").is_symlink()
    assert not (scratch / "labels.txt").is_symlink()
    (scratch / "labels.txt").write_text("3")
    assert (home / "labels.txt").read_text() == "2"


@pytest.mark.parametrize(
    ("others", "text", "found"),
    [
        (3, "open('../data/a.txt')", 5),  # few entries: all of them
        (CROWD, "open('../data/a.txt')", 1),
        (CROWD, "open('../data.txt')", 0),
        (CROWD, "open(f'../{name}')", CROWD + 2),
        (CROWD, "os.listdir('..')", CROWD + 2),
    ],
)
def test_a_script_finds_what_it_names_in_a_crowded_folder_above_it(
    tmp_path: Path, others: int, text: str, found: int
):
    home = tmp_path / "home"
    for name in ["home", "data", *(f"other{n}" for n in range(others))]:
        (tmp_path / name).mkdir()
    (home / "train.py").write_text(text)
    names = {path.name for path in asked_for(home, tmp_path, ())}
    assert len(names) == found
    assert "data" in names or not found
    assert "data" in {path.name for path in asked_for(home, tmp_path, ("--data", "../data"))}


def test_a_difference_without_a_known_reason_is_checked_again_in_float64(monkeypatch):
    looked = []

    def doubtful(original: Run, nudged: Run, run: Run, **options: bool) -> Comparison:
        found = compare(original, nudged, run, **options)
        if not looked:
            found.status, found.reason = "differs", UNKNOWN
        looked.append(found)
        return found

    monkeypatch.setattr("lockstep.convert.verify.proof.compare", doubtful)
    case = CASES / "classification"
    verdict = verify(
        case / "before.py", case / "after.py", replicas=(2,), timeout=300.0, doctor=False
    )
    (found,) = verdict.comparisons
    assert verdict.proved, found
    assert "equal in 6 steps in float64" in found.text
    assert 0 < found.difference < 1e-12
