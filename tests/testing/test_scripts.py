"""Scripts on 1 and 2 real replicas: right and wrong, for each framework."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.testing import NotSame, same_on

CASES = Path(__file__).parent.parent / "cases" / "testing"


@pytest.fixture(autouse=True)
def _in_the_folder_of_the_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES)


def failure(*command: str, **options: float) -> str:
    with pytest.raises(NotSame) as caught:
        same_on(1, 2, **options)(*command)
    return str(caught.value)


def test_plain_ddp_is_the_same():
    same_on(1, 2)("ddp.py")


def test_ranks_that_seed_by_their_number_differ():
    said = failure("ddp.py", "--bug", "seed")
    assert said.startswith("ddp.py --bug seed: 2 replicas do not train as 1 does. They differ ")
    assert "after step 1, in Sequential.0.weight: by " in said
    assert "Together, the ranks take different samples than 1 replica." in said
    assert "error LS04 unseeded_split" in said
    assert said.endswith("type: lockstep doctor ddp.py --run --replicas 2 -- --bug seed")


def test_a_batch_that_grows_with_the_replicas_differs():
    said = failure("ddp.py", "--bug", "batch")
    assert "The global batch is 32 samples, on 1 replica 16." in said


def test_a_sampler_without_set_epoch_fails_though_one_replica_has_the_bug_too():
    said = failure("ddp.py", "--bug", "epoch")
    assert "2 replicas train as 1 does, but the doctor found a bug that both have" in said
    assert "ddp.py:45: error LS01 missing_set_epoch" in said


def test_the_mean_of_uneven_last_batches_differs():
    said = failure("ddp.py", "--samples", "61", "--bug", "uneven")
    assert "They differ after step 4" in said
    assert "The ranks took 7 and 6 samples for step 4" in said


def test_uneven_last_batches_are_the_same_if_samples_weigh_equally():
    same_on(1, 2)("ddp.py", "--samples", "61", "--bug", "weighted")


def test_a_sampler_that_repeats_samples_is_named():
    said = failure("ddp.py", "--samples", "61")
    assert "The last batch of a pass is 14 samples, on 1 replica 13" in said


def test_the_error_of_a_rank_is_shown():
    said = failure("ddp.py", "--bug", "crash")
    assert "ddp.py --bug crash cannot be compared on 2 replicas: it crashes." in said
    assert "RuntimeError: no such class" in said


@pytest.mark.slow
def test_the_stacks_of_a_script_that_hangs_are_shown():
    said = failure("ddp.py", "--bug", "hang", timeout=5.0)
    assert "it hangs: backward at ddp.py:56, barrier at ddp.py:49." in said
    assert "ddp.py:49 in <module>" in said


def test_an_exact_program_has_equal_bits():
    same_on(1, 2)("loop.py")


@pytest.mark.slow
def test_exact_programs_have_equal_bits_and_fast_ones_agree_to_rounding():
    same_on(1, 2)("loop.py", "--fast")
    assert "where not a bit may differ" in failure("loop.py", "--bug")
    assert "where rounding explains" in failure("loop.py", "--fast", "--bug")


@pytest.mark.slow
def test_accelerate_is_the_same_if_it_divides_the_batch():
    same_on(1, 2)("accelerated.py")


@pytest.mark.slow
def test_accelerate_differs_if_it_does_not_divide_the_batch():
    assert "The global batch is 32 samples" in failure("accelerated.py", "--split", "0")


@pytest.mark.slow
@pytest.mark.parametrize("script", ["lit.py", "hf.py"])
def test_a_trainer_is_the_same_if_the_script_divides_the_batch(script: str):
    same_on(1, 2)(script)


@pytest.mark.slow
@pytest.mark.parametrize("script", ["lit.py", "hf.py"])
def test_a_trainer_differs_if_the_script_does_not(script: str):
    assert "The global batch is 32 samples" in failure(script, "--whole")


@pytest.mark.slow
def test_a_script_that_starts_its_ranks_gets_their_number():
    same_on(1, 2)("spawns.py", "--replicas", "{replicas}")
    said = failure("spawns.py", "--replicas", "{replicas}", "--bug")
    assert "They differ after step 1, in Linear.weight" in said
