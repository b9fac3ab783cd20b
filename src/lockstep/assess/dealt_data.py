"""The grader's data: a new split into training and test images, each recognised by its content.

A program sees a different split than the learner had, so earlier training does not help it. The
grader recognises an image that goes through a model whatever its scale and shift.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from lockstep.assess.exam import Exam
from lockstep.assess.image_marks import marks
from lockstep.data import cifar10, digits
from lockstep.data.images import CIFAR10_FILES
from lockstep.errors import DataError

NEAR = 0.05
"""Two images are the same if their marks differ by less. Different images differ by far more."""
CACHE = Path(".cache", "lockstep", "cifar10")


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Images (bytes) and labels, for training and test."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    def write(self, path: Path) -> None:
        """Write the file that a program gets."""
        np.savez(path, **{name: getattr(self, name).numpy() for name in self.__dataclass_fields__})

    @cached_property
    def marks(self) -> Tensor:
        """The marks of all images, training images first."""
        return torch.cat([marks(self.train_images), marks(self.test_images)])

    def known(self, rows: Tensor) -> Tensor:
        """Return the number of each image that has these marks, or -1."""
        distances, nearest = self._tree.query(rows.numpy(), distance_upper_bound=NEAR)
        return torch.from_numpy(np.where(np.isfinite(distances), nearest, -1))

    @cached_property
    def _tree(self) -> Any:
        return cKDTree(self.marks.numpy())

    @cached_property
    def normal_test_images(self) -> Tensor:
        """The test images as the given program normalises them."""
        return self.normal(self.test_images)

    def normal(self, images: Tensor) -> Tensor:
        """Normalise images as the given program does."""
        train = self.train_images.float()
        return (images.float() - train.mean()) / train.std()


def deal(exam: Exam, seed: int, folder: Path | None = None) -> Samples:
    """Split the images of an exam by a seed; `folder` holds CIFAR-10 if the cache does not."""
    data = digits() if exam.data == "digits" else cifar10(find_cifar10(folder))
    images = torch.cat([data.train.inputs, data.test.inputs])
    labels = torch.cat([data.train.targets, data.test.targets])
    first = _distinct(images)
    order = first[torch.randperm(len(first), generator=torch.Generator().manual_seed(seed))]
    train, test, _ = order.split(
        [exam.train_samples, exam.test_samples, len(order) - exam.train_samples - exam.test_samples]
    )
    return Samples(
        train_images=images[train].contiguous(),
        train_labels=labels[train],
        test_images=images[test].contiguous(),
        test_labels=labels[test],
    )


def _distinct(images: Tensor) -> Tensor:
    """Return one index per distinct image: two equal images could not be told apart later."""
    seen = {image.tobytes(): n for n, image in enumerate(images.numpy())}
    return torch.tensor(sorted(seen.values()))


def find_cifar10(folder: Path | None = None) -> Path:
    """Return the folder with CIFAR-10; download nothing."""
    place = Path.home() / CACHE if folder is None else folder
    archive = next(iter(CIFAR10_FILES))
    inside = ("", "cifar-10-batches-py", "cifar-10-batches-bin")
    batches = [Path(i, f"test_batch{suffix}") for i in inside for suffix in ("", ".bin")]
    if any((place / name).is_file() for name in (Path(archive), *batches)):
        return place
    raise DataError(
        f"CIFAR-10 is not in {place}. Put {archive} there, name its folder "
        "with --data FOLDER, or use --data digits, which comes with lockstep."
    )
