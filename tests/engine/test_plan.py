"""Plans: every shard computed once, or an error that names what works."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lockstep.engine.recipe.plan import Plan, cut, make_plan
from lockstep.errors import PlanError

ORDER = ["shards", "global_batch", "replicas", "micro_batch"]
wishes = st.fixed_dictionaries(
    {
        "global_batch": st.integers(-20, 300),
        "shards": st.integers(-5, 40) | st.sampled_from([1, 2, 4, 8, 16, 32]),
        "replicas": st.integers(-5, 40) | st.sampled_from([1, 2, 4, 8, 16, 32]),
        "micro_batch": st.none() | st.integers(-10, 300),
    }
)


def complaint(wish: dict) -> tuple[str, str] | None:
    """The setting that make_plan complains about, and what it says; None if all is well."""
    try:
        check(make_plan(**wish))
        return None
    except PlanError as error:
        message = str(error)
    found = re.match(r"--([a-z-]+) (-?\d+) ", message)
    assert found, message
    name = found[1].replace("-", "_")
    assert int(found[2]) == wish[name]
    return name, message


def check(plan: Plan) -> None:
    """Every shard is computed exactly once, by exactly one replica."""
    computed = [
        shard for rank in range(plan.replicas) for part in plan.parts(rank) for shard in part
    ]
    assert computed == list(range(plan.shards))
    for rank in range(plan.replicas):
        parts = plan.parts(rank)
        assert len(parts) == plan.accumulation
        assert all(len(part) == plan.shards_per_micro for part in parts)
        assert sum(len(part) for part in parts) == plan.shards_per_replica
    assert plan.shard_size * plan.shards == plan.global_batch
    assert plan.micro_batch * plan.accumulation * plan.replicas == plan.global_batch


def offered(message: str) -> list[int]:
    """The values that a message says would do."""
    found = re.search(r"Nearest that (?:does|do): ([^.]*)\.", message)
    assert found, message
    return [int(number) for number in found[1].split(", ")]


@given(wishes)
@example({"global_batch": 8, "shards": -3, "replicas": 1, "micro_batch": None})
@example({"global_batch": -10, "shards": 4, "replicas": 1, "micro_batch": None})
def test_any_wish_is_a_plan_or_names_the_nearest_values_that_work(wish):
    said = complaint(wish)
    if said is None:
        return
    name, message = said
    numbers = offered(message)
    assert numbers
    for number in numbers:
        # It works, or what is left to complain about is another setting, checked later.
        rest = complaint(wish | {name: number})
        assert rest is None or ORDER.index(rest[0]) > ORDER.index(name), message


@given(wishes)
def test_following_the_messages_leads_to_a_plan(wish):
    for _ in ORDER:
        said = complaint(wish)
        if said is None:
            return
        wish = wish | {said[0]: offered(said[1])[0]}
    assert complaint(wish) is None


@given(wishes)
def test_no_value_nearer_than_the_offered_ones_would_work(wish):
    said = complaint(wish)
    if said is None or wish[said[0]] < 1:
        return
    name, message = said
    given_value, numbers = wish[name], offered(message)
    nearest = min(abs(number - given_value) for number in numbers)
    for distance in range(nearest):
        for other in (given_value - distance, given_value + distance):
            rest = complaint(wish | {name: other})
            assert rest is not None
            assert ORDER.index(rest[0]) <= ORDER.index(name)


@given(wishes)
@example({"global_batch": 64, "shards": 2, "replicas": 3, "micro_batch": None})
@example({"global_batch": 4, "shards": 4, "replicas": 8, "micro_batch": None})
@example({"global_batch": 64, "shards": 4, "replicas": 8, "micro_batch": None})
def test_more_shards_are_offered_only_if_they_would_work(wish):
    said = complaint(wish | {"micro_batch": None})
    found = said and re.search(r"Or ask for --shards (\d+)", said[1])
    if found:
        assert complaint(wish | {"micro_batch": None, "shards": int(found[1])}) is None


@given(st.integers(1, 64), st.integers(0, 5), st.integers(0, 5))
def test_powers_of_two_that_divide_always_fit(size, shards, replicas):
    shards, replicas = 1 << max(shards, replicas), 1 << replicas
    plan = make_plan(global_batch=size * shards, shards=shards, replicas=replicas)
    check(plan)
    assert plan.accumulation == 1
    assert plan.micro_batch == plan.global_batch // replicas


def test_exact_mode_computes_shard_by_shard():
    plan = make_plan(global_batch=64, shards=8, replicas=2, exact=True)
    assert (plan.shards_per_micro, plan.micro_batch, plan.accumulation) == (1, 8, 4)
    assert plan.parts(1) == [range(4, 5), range(5, 6), range(6, 7), range(7, 8)]
    assert plan == make_plan(global_batch=64, shards=8, replicas=2, exact=True, micro_batch=8)


def test_exact_mode_refuses_another_micro_batch():
    with pytest.raises(PlanError, match=r"--micro-batch 16 .*--exact.* 8 samples.*Leave it out"):
        make_plan(global_batch=64, shards=8, replicas=2, exact=True, micro_batch=16)


def test_the_micro_batch_decides_how_many_shards_go_together():
    plan = make_plan(global_batch=64, shards=8, replicas=2, micro_batch=16)
    assert plan.parts(0) == [range(2), range(2, 4)]
    assert plan.parts(1) == [range(4, 6), range(6, 8)]


def test_the_message_says_what_was_given_and_what_to_type():
    with pytest.raises(PlanError) as error:
        make_plan(global_batch=100, shards=8)
    assert str(error.value) == (
        "--global-batch 100 does not cut into 8 equal shards. Nearest that do: 96, 104. "
        "Or keep the batch and use --shards 4."
    )


@given(st.integers(0, 10_000), st.integers(1, 200))
def test_cuts_are_a_partition_into_parts_as_equal_as_can_be(count, parts):
    bounds = cut(count, parts)
    assert len(bounds) == parts + 1
    assert (bounds[0], bounds[-1]) == (0, count)
    sizes = {high - low for low, high in pairwise(bounds)}
    assert min(sizes) >= 0
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(0, 10_000), st.integers(0, 5), st.integers(0, 5))
def test_cuts_for_more_shards_refine_those_for_fewer(count, few, more):
    # So a replica's part is the same whether it is cut at once or shard by shard.
    coarse, fine = cut(count, 1 << few), cut(count, 1 << (few + more))
    assert fine[:: 1 << more] == coarse
