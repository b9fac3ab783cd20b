"""A hash of a batch depends on its values, not on how its tensors lie in memory."""

from __future__ import annotations

import pytest
import torch

from lockstep.data.nested import digest
from lockstep.engine.checks.fingerprint import fingerprint


@pytest.mark.parametrize("size", [0, 1, 5])
def test_expanded_tensors_have_the_hash_of_plain_ones(size: int):
    expanded, plain = torch.ones(()).expand(size), torch.ones(size)
    assert digest(expanded) == digest(plain)
    assert int(fingerprint(expanded)) == int(fingerprint(plain))


def test_other_values_have_another_hash():
    assert digest({"x": torch.ones(1)}) != digest({"x": torch.zeros(1)})
    assert int(fingerprint(torch.ones(1))) != int(fingerprint(torch.full((1,), 2.0)))
