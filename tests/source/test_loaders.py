"""Loaders are found, with their loops, their arguments and what they are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.source.loaders import Loader
from lockstep.source.project import Project
from lockstep.source.reading import parse
from lockstep.source.training import Training

HEAD = """
import argparse
import torch
from torch.utils.data import DataLoader, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", "-b", type=int, default=32)
parser.add_argument("--workers", dest="num_workers", default=4)
parser.add_argument("--pin", action="store_true")
args = parser.parse_args()
"""


def loaders(text: str) -> list[Loader]:
    return Training(Project([parse(Path("script.py"), HEAD + text)])).loaders


@pytest.mark.parametrize(
    ("text", "trains", "evaluates"),
    [
        ("x = DataLoader(d)", None, False),
        ("train_loader = DataLoader(d)", True, False),
        ("valset_loader = DataLoader(d)", False, True),
        # It may be one for validation, but the name does not say so.
        ("values = DataLoader(d)", False, False),
        ("x = DataLoader(MNIST('.', train=False))", False, True),
        ("x = DataLoader(d)\nfor b in x:\n    f(b).backward()", True, False),
        ("x = DataLoader(d)\nwith torch.no_grad():\n    for b in x: f(b)", False, True),
        ("x = DataLoader(d)\nfor b in x: f(b)", False, False),
    ],
)
def test_a_loader_tells_what_it_is_for(text: str, trains: bool | None, evaluates: bool):
    (loader,) = loaders(text + "\n")
    assert (loader.trains, loader.evaluates) == (trains, evaluates)


def test_a_loader_tells_which_samplers_split_it():
    split, plain = loaders(
        "a = DataLoader(d, sampler=DistributedSampler(d))\nb = DataLoader(d, sampler=pick(d))\n"
    )
    assert [o.call is not None for o in split.split_by()[0]] == [True]
    assert split.split_by()[1]
    assert plain.split_by() == ([], False)


def test_arguments_are_followed_to_the_flags_defaults():
    (loader,) = loaders(
        "x = DataLoader(d, args.batch_size, num_workers=args.num_workers, pin_memory=args.pin)\n"
    )
    assert loader.constants("batch_size") == [32]
    assert loader.constants("num_workers") == [4]
    assert loader.constants("pin_memory") == [False]
    assert loader.constants("shuffle") == []
