"""Batches of several ranks as one: what is known is joined, and nothing is guessed."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, namedtuple
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence

from lockstep.probes.oracle.batches import joined, mapped, tensors
from lockstep.probes.oracle.difference import tolerance

Pair = namedtuple("Pair", "x y")


@dataclass(frozen=True)
class Example:
    x: Tensor
    y: Tensor


def rows(first: int) -> dict[str, Tensor]:
    return {"x": torch.full((2, 3), first), "y": torch.arange(first, first + 2)}


MAKERS = [
    dict,
    OrderedDict,
    UserDict,
    MappingProxyType,
    lambda named: defaultdict(list, named),
    lambda named: Pair(**named),
    lambda named: Example(**named),
    lambda named: list(named.values()),
]


@pytest.mark.parametrize("make", MAKERS)
def test_batches_of_known_types_are_joined_to_one_of_their_type(make: Any):
    ranks = [make(rows(0)), make(rows(2))]
    whole = joined(ranks, [2, 2])
    assert type(whole) is type(ranks[0])
    assert [t.tolist() for t in tensors(whole)] == [[[0] * 3] * 2 + [[2] * 3] * 2, [0, 1, 2, 3]]


@pytest.mark.parametrize("make", MAKERS)
def test_the_original_stays_as_it_is(make: Any):
    data = make(rows(0))
    copy = mapped(data, lambda t: t + 1)
    assert type(copy) is type(data)
    assert [int(t.sum()) for t in tensors(data)] == [0, 1]
    assert [int(t.sum()) for t in tensors(copy)] == [6, 3]


@pytest.mark.parametrize("value", ["train", 3, None, torch.tensor(0.5)])
def test_a_value_that_is_the_same_on_all_ranks_is_that_value(value: Any):
    assert joined([(value, torch.ones(2)), (value, torch.ones(2))], [2, 2])[0] is value


@pytest.mark.parametrize(
    "ranks",
    [
        [SimpleNamespace(x=torch.ones(2)), SimpleNamespace(x=torch.ones(2))],
        [np.ones(2), np.ones(2)],
        [pack_sequence([torch.ones(2)]), pack_sequence([torch.ones(2)])],
        [{"tokens": 3}, {"tokens": 4}],
        [torch.tensor(3), torch.tensor(4)],
        [{"x": torch.ones(2)}, {"x": torch.ones(2), "mask": torch.ones(2)}],
    ],
)
def test_unknown_values_are_refused_rather_than_taken_from_one_rank(ranks: list[Any]):
    with pytest.raises((TypeError, KeyError)):
        joined(ranks, [2, 2])


def test_rounding_explains_more_in_the_coarsest_type_of_a_step():
    gradient = [torch.ones(2)]
    fine = tolerance(gradient, set())
    assert fine < tolerance(gradient, {torch.float16})
    both = tolerance(gradient, {torch.float16, torch.bfloat16})
    assert both == tolerance(gradient, {torch.bfloat16})
