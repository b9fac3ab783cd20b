"""What is judged without any run: times, formulas, weights, who is how far."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from assess.sheets import good, poor, task
from lockstep.assess import history
from lockstep.assess.certificate import payload_of, write
from lockstep.assess.checks import CHECKS
from lockstep.assess.checks.validation import explained
from lockstep.assess.dealt_data import deal
from lockstep.assess.exam import EXAMS
from lockstep.assess.keys import Ed25519PrivateKey, raw
from lockstep.assess.observed_run import Batch, Watched
from lockstep.assess.recount import Recount, build, recount
from lockstep.assess.starter import instructions, read_task, start
from lockstep.assess.summary import summary
from lockstep.assess.timing import Times, decided, outcome
from lockstep.errors import AssessError

EXAM = EXAMS["digits"]


def test_the_checks_are_found_and_come_in_the_order_of_the_instructions():
    assert [(check.place, check.name) for check in CHECKS] == [
        (1, "start"),
        (2, "samples"),
        (3, "order"),
        (4, "replicas"),
        (5, "gradient"),
        (6, "validation"),
        (7, "saving"),
        (8, "target"),
        (9, "speed"),
        (10, "honest"),
    ]
    text = instructions(task())
    assert all(f"{check.place}. **{check.title}" in text for check in CHECKS)


def times(reference: float, submission: float, rounds: int = 1) -> Times:
    return Times(
        single=[2.0, 2.1], reference=[reference] * 3, submission=[submission] * 3, rounds=rounds
    )


@pytest.mark.parametrize(
    ("submission", "rounds", "done"),
    [
        (1.0, 1, False),  # as fast as the reference, and once is not enough
        (1.0, 2, True),
        (1.3, 2, False),  # 0.77 of it: too near to 0.75
        (1.3, 3, True),  # often enough
        (3.0, 2, True),
    ],
)
def test_times_near_the_limit_are_taken_again(submission: float, rounds: int, done: bool):
    assert decided(times(1.0, submission, rounds), 0.75) is done


def test_a_busy_machine_makes_single_epochs_longer_and_nothing_of_it():
    quiet, busy = times(1.0, 1.1), times(1.0, 1.1)
    busy.submission = [1.1, 9.0, 1.1, 7.0]
    assert busy.gain == quiet.gain == pytest.approx(2.0 / 1.1)
    assert quiet.possible == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("submission", "waited", "good"),
    [
        (1.0, [0.0, 0.1], True),
        (1.4, [0.0, 0.1], False),
        (1.0, [0.5, 0.4], True),
        (1.3, [0.5, 0.4], None),  # it may be luck
        (1.4, [0.5, 0.4], None),  # or for want of a CPU
        (9.0, [0.5, 0.4], False),
    ],
)
def test_on_a_busy_machine_only_what_is_clear_is_judged(submission, waited, good):
    found = times(1.0, submission)
    found.waited = waited
    assert outcome(found, 0.75) is good


RIGHT = torch.tensor([True, True, False, True, True, False, True, True, False])


@pytest.mark.parametrize(
    ("printed", "batches", "words"),
    [
        (6 / 9, [[[0, 1], [2, 3]], [[4, 5], [6, 7, 8]]], None),
        (7 / 10, [[[0, 1, 2, 3, 4]], [[5, 6, 7, 8, 0]]], "counts 1 sample(s) twice"),
        (7 / 9, [[[0, 1, 2, 3, 4]], [[5, 6, 7, 8, 0]]], "and divides by 9"),
        (5 / 7, [[[0, 1, 2, 3]], [[4, 5, 6]]], "it leaves 2 of 9 samples out"),
        ((4 / 5 + 2 / 4) / 2, [[[0, 1, 2, 3, 4]], [[5, 6, 7, 8]]], "mean of the ranks'"),
        ((5 / 6 + 0) / 2, [[[0, 1, 2, 3, 4, 6], [5]], [[0, 1, 3, 4, 6, 2], [8]]], "over batches"),
        (4 / 5, [[[0, 1, 2, 3, 4]], [[5, 6, 7, 8]]], "rank 0's part alone"),
        (4 / 9, [[[0, 1, 2, 3, 4]], [[5, 6, 7, 8]]], "rank 0's part alone and divides by all"),
    ],
)
def test_a_wrong_accuracy_is_known_by_its_formula(printed, batches, words):
    parts = [[torch.tensor(part) for part in rank] for rank in batches]
    # The right way is no mistake; here its number belongs to none of the wrong ones either.
    parts = [rank[:1] for rank in parts] if words is None else parts
    found = explained([f"{printed:.4f}"], [RIGHT], [parts])
    assert (found is None) if words is None else (found is not None and words in found)


def test_samples_are_known_again_whatever_their_scale():
    samples = deal(EXAM, 3)
    images = torch.cat([samples.normal(samples.train_images)[:7], samples.normal_test_images[:5]])
    from lockstep.assess.image_marks import marks

    first = len(samples.train_labels)
    numbers = samples.known(marks(images * 0.3 - 2)).tolist()
    assert numbers == [*range(7), *range(first, first + 5)]
    assert samples.known(marks(images.flip(3))).tolist() == [-1] * 12
    assert samples.known(marks(images.bfloat16())).tolist() == numbers


def test_every_dealing_is_another_and_none_has_a_sample_twice():
    one, same, other = deal(EXAM, 3), deal(EXAM, 3), deal(EXAM, 4)
    assert torch.equal(one.train_images, same.train_images)
    assert not torch.equal(one.train_labels, other.train_labels)
    assert len(one.marks) == EXAM.train_samples + EXAM.test_samples
    apart = torch.cdist(one.marks, one.marks).fill_diagonal_(9.0)
    assert apart.min() > 0.2


def test_an_epoch_is_what_came_between_two_files():
    batches = [Batch(step, torch.tensor([step]), learned=True) for step in range(4)]
    batches.insert(2, Batch(2, torch.tensor([70, 71]), learned=False))
    found = Watched(2, [batches], [{}], ends={1: 2, 2: 4})
    assert found.learned(1)[0].tolist() == [0, 1]
    assert found.learned(2)[0].tolist() == [2, 3]
    assert found.evaluated(1)[0][0].tolist() == [70, 71]
    assert found.evaluated(2) == [[]]
    assert found.learned(3)[0].tolist() == []


def test_an_accuracy_may_differ_by_what_rounding_decides():
    sure = Recount(right=torch.tensor([True] * 90 + [False] * 10))
    assert sure.allows("0.9000")
    assert not sure.allows("0.8900")
    unsure = Recount(right=sure.right, unsure=1)
    assert unsure.allows("0.8900")
    assert not unsure.allows("0.8800")


def test_weights_that_are_not_the_models_are_named(tmp_path: Path):
    samples, model = deal(EXAM, 3), build(EXAM)
    path = tmp_path / "epoch-1.pt"
    for content, words in (
        (b"no weights", "cannot be loaded"),
        ([1, 2], "does not hold a model's state_dict"),
        ({"weight": torch.ones(2)}, "does not fit the given model"),
        ({f"module.{n}": v for n, v in model.state_dict().items()}, "begin with 'module.'"),
        (model.state_dict(), ""),
    ):
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            torch.save(content, path)
        assert words in recount(path, EXAM, samples).problem
    found = recount(path, EXAM, samples)
    assert found.right is not None
    assert found.accuracy < 0.5


def test_a_folder_is_written_once_and_read_again(tmp_path: Path):
    made = start(tmp_path / "task", data="digits", replicas=3, minutes=20, name="Ada")
    assert read_task(tmp_path / "task") == made
    assert {path.name for path in (tmp_path / "task").iterdir()} == {
        "README.md",
        "data.npz",
        "model.py",
        "task.json",
        "train.py",
    }
    text = (tmp_path / "task" / "README.md").read_text()
    assert "--nproc-per-node 3" in text
    assert "20 minutes" in text
    assert "@" not in text
    assert "batch norm" not in text
    with pytest.raises(AssessError, match="is not empty"):
        start(tmp_path / "task", data="digits", replicas=3)


def test_the_instructions_of_the_other_data_speak_of_batch_norm():
    from dataclasses import replace

    assert "batch norm" in instructions(replace(task(), data="cifar10"))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1, "data": "letters"}'])
def test_a_damaged_task_is_refused(tmp_path: Path, content: str):
    (tmp_path / "task.json").write_text(content)
    with pytest.raises(AssessError, match="is damaged"):
        read_task(tmp_path)


def test_an_instructor_sees_who_is_how_far(tmp_path: Path):
    key = Ed25519PrivateKey.generate()
    ada, bob, eve, new = (tmp_path / name for name in ("ada", "bob", "eve", "new"))
    for folder, name in ((ada, "Ada"), (bob, "Bob"), (eve, "Eve"), (new, "")):
        folder.mkdir()
        task(name=name).write(folder)
    for grade in (poor("order", "speed"), good()):
        history.append(ada, history.attempt(grade, task(), "Ada"))
    write(ada, payload_of(good(), task(), "Ada", by_instructor=True), key)
    history.append(bob, history.attempt(poor("speed"), task(minutes_ago=200), "Bob"))
    (bob / "progress.json").write_text(
        json.dumps(
            {
                "labs": {
                    "0": {"tasks": {"a": True, "b": False}, "quiz": {"right": 4, "of": 5}},
                    "1": {"tasks": {"a": {"tries": 3, "passed": None}}, "quiz": None},
                }
            }
        )
    )
    (eve / "history.jsonl").write_text('{"half a li\n')
    (eve / "certificate.svg").write_bytes((ada / "certificate.svg").read_bytes() + b"<!-- -->\n")
    (eve / "progress.json").write_text("[1]")
    (tmp_path / "other").mkdir()

    rows = {row["folder"]: row for row in summary(tmp_path, raw(key.public_key()))}
    assert list(rows) == ["ada", "bob", "eve", "new"]
    assert (rows["ada"]["name"], rows["ada"]["attempts"]) == ("Ada", 2)
    assert rows["ada"]["best"] == {"score": 10, "of": 10}
    assert rows["ada"]["failing"] == []
    assert rows["ada"]["in_time"]
    assert rows["ada"]["certificate"]["valid"]
    assert rows["ada"]["certificate"]["by"] == "instructor"
    assert rows["bob"]["failing"] == ["speed"]
    assert rows["bob"]["in_time"] is False
    assert rows["bob"]["labs"] == {
        "0": {"done": 1, "tasks": 2, "quiz": "4/5"},
        "1": {"done": 0, "tasks": 1, "quiz": None},
    }
    assert rows["eve"]["certificate"]["valid"] is False
    assert rows["eve"]["problems"] == [
        "1 line(s) of history.jsonl are damaged",
        "progress.json is damaged: TypeError",
    ]
    assert rows["new"]["attempts"] == 0
    assert rows["new"]["certificate"] is None
    other = raw(Ed25519PrivateKey.generate().public_key())
    assert summary(tmp_path, other)[0]["certificate"]["valid"] is False
    with pytest.raises(AssessError, match="holds no learner's folder"):
        summary(tmp_path / "other")


def test_half_a_line_of_the_history_does_not_take_the_next_with_it(tmp_path: Path):
    (tmp_path / history.FILE).write_text('{"half')
    history.append(tmp_path, history.attempt(good(), task(), "Ada"))
    found, damaged = history.attempts(tmp_path)
    assert ([one["score"] for one in found], damaged) == ([10], 1)
