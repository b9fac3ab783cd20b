"""A turn has a lead that is not timed, and a number of steps that are."""

from __future__ import annotations

from multiprocessing import Pipe

import pytest
import torch

from lockstep.bench.turns import Enough, Few, Piped, Turn


def test_only_the_steps_after_the_lead_are_counted():
    ours, theirs = Pipe()
    pace = Piped(theirs, torch.device("cpu"))
    pace.begin(torch.nn.Linear(2, 3))
    ours.send(Turn(lead=2, steps=3, frees=True))
    pace.step(5)  # the first step ends the set-up, reports, and takes the turn that is waiting
    first = ours.recv()
    assert (first.samples, first.parameters) == (5, 9)
    ours.send(Turn(lead=0, steps=1, frees=True))
    for samples in (100, 100, 1, 2, 3):
        assert not ours.poll()
        pace.step(samples)
    assert ours.recv().samples == 6


def test_few_steps_end_in_enough():
    pace = Few(2)
    pace.step(4)
    with pytest.raises(Enough):
        pace.step(4)
    assert pace.samples == 8
