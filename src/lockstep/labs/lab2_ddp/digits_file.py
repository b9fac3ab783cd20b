"""The digits in a file, as a program of the lab reads them."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np

NAME = "digits.npz"
TRAIN, TEST = 1438, 359
"""Samples. The test set is odd on purpose: two ranks cannot have equal parts of it."""


def write_digits(folder: Path, train: int = TRAIN, test: int = TEST) -> Path:
    """Write the first so many digits to train on and to test on: every fifth is a test digit."""
    with resources.files("lockstep.data").joinpath(NAME).open("rb") as file:
        arrays = np.load(file)
        images, labels = arrays["images"], arrays["labels"]
    is_test = np.arange(len(images)) % 5 == 0
    # The last of them goes to the others.
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
