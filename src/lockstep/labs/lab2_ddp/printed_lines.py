"""Read the numbers that a program of the lab prints per epoch."""

from __future__ import annotations

import re
from typing import NamedTuple

_ACCURACY = re.compile(r"acc\w*\W*?(\d*\.?\d+)\s*(%?)", re.I)
_RATE = re.compile(r"(\d*\.?\d+) images/s")
_IMAGES = re.compile(r"(\d+) images(?!/)")


class Printed(NamedTuple):
    """The numbers of all epochs."""

    images: list[int]
    rates: list[float]
    """Images per second."""
    accuracies: list[float]
    digits: int
    """The digits of an accuracy after the point."""


def printed(text: str) -> Printed:
    """Read the lines of one process.

    >>> printed("epoch 0: 128 images, 3100 images/s, accuracy 0.4400")
    Printed(images=[128], rates=[3100.0], accuracies=[0.44], digits=4)
    """
    accuracies = _ACCURACY.findall(text)
    number, percent = accuracies[-1] if accuracies else ("", "")
    return Printed(
        images=[int(found) for found in _IMAGES.findall(text)],
        rates=[float(found) for found in _RATE.findall(text)],
        accuracies=[float(value) / (100 if sign else 1) for value, sign in accuracies],
        digits=len(number.partition(".")[2]) + 2 * bool(percent),
    )
