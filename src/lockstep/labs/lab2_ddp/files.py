"""The files of the lab: the program for one GPU, the pages of the steps, and the digits."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np

NAME = "digits.npz"
TRAIN, TEST = 1438, 359
"""Numbers of samples. The test set is odd on purpose: two ranks cannot share it equally."""


def write_digits(folder: Path, train: int = TRAIN, test: int = TEST) -> Path:
    """Write the first `train` and `test` digits; every fifth digit is a test digit."""
    # Not the package lockstep.data: to name it imports torch, which takes a second.
    with resources.files("lockstep").joinpath("data", NAME).open("rb") as file:
        arrays = np.load(file)
        images, labels = arrays["images"], arrays["labels"]
    is_test = np.arange(len(images)) % 5 == 0
    # The last one becomes a training digit.
    is_test[np.flatnonzero(is_test)[TEST:]] = False
    path = folder / NAME
    np.savez(
        path,
        train_images=images[~is_test][:train],
        train_labels=labels[~is_test][:train],
        test_images=images[is_test][:test],
        test_labels=labels[is_test][:test],
    )
    return path


@cache
def program() -> str:
    """Return the program for one GPU."""
    return page("program.txt")


def page(name: str) -> str:
    """Read a file of `pages/`."""
    return resources.files(__package__).joinpath("pages", name).read_text("utf-8")
