"""Stand-in data for the data sets of torchvision: shapes, classes and attributes of the real ones.

Each data set gets the attributes that its real class sets, so that the real class works on them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image

from lockstep.probes.fake_data.notes import note
from lockstep.probes.fake_data.pictures import TEST, TRAIN, Shape, classes_of, picture, pictures

Sample = tuple[Any, Any]


@dataclass(frozen=True)
class Known:
    """The shape of a data set, and how to fill it."""

    shape: Shape
    classes: int
    train: int
    """Samples that the real one has for training; 0 if the number varies."""
    test: int
    fill: Callable[[Any, Known, str, int], None]
    """Set the attributes that the real class sets: (data set, this, part, samples)."""
    take: Callable[[Any, int], Sample]
    """Return a sample before its transforms."""


def fill(data: Any, name: str) -> None:
    """Fill a data set whose arguments are already its attributes."""
    known = KNOWN[name]
    part = _part(data)
    trains = not any(word in part for word in ("test", "val"))
    count = TRAIN if trains else TEST
    data._lockstep = name, count, known.train if trains else known.test
    known.fill(data, known, part, count)
    height, width, channels = known.shape
    note(f"{name}: stand-in data, {count:,} samples of {channels}x{height}x{width}")
    if not hasattr(data, "classes"):
        data.classes = [str(number) for number in range(_classes(data, known))]
    if not hasattr(data, "class_to_idx"):
        data.class_to_idx = {name: number for number, name in enumerate(data.classes)}


def item(data: Any, index: Any) -> Sample:
    """Return a sample with its transforms applied."""
    name, count, real = data._lockstep
    index, length = int(index), len(data)
    # Also answer an index that only the real data have: Subset(data, range(50_000)).
    if not -length <= index < (max(real, length) if length == count else length):
        raise IndexError(f"sample {index} of {length}")
    image, target = KNOWN[name].take(data, index % length)
    if data.transform is not None:
        image = data.transform(image)
    if data.target_transform is not None:
        target = data.target_transform(target)
    return image, target


def items(data: Any) -> Iterator[Sample]:
    """Iterate over all samples. Without this, Python would go on to indices of the real data."""
    return (data[index] for index in range(len(data)))


def name_of(data: Any) -> str | None:
    """Return the name of the data set that an object is, or derives from."""
    return next((kind.__name__ for kind in type(data).__mro__ if kind.__name__ in KNOWN), None)


def _part(data: Any) -> str:
    if isinstance(getattr(data, "train", None), bool):
        return "train" if data.train else "test"
    if name_of(data) == "ImageFolder":
        return os.path.basename(os.path.normpath(data.root)) or "train"
    # LSUN takes the part as its classes.
    return str(getattr(data, "split", None) or data.classes)


def _classes(data: Any, known: Known) -> int:
    if name_of(data) == "EMNIST":
        splits = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 27}
        return splits.get(str(data.split), known.classes)
    return known.classes


def image_of(array: Any) -> Any:
    """Return an array as the image that transforms expect."""
    return Image.fromarray(np.ascontiguousarray(array))


def _drawn(data: Any, known: Known, part: str, count: int) -> tuple[Any, Any]:
    name = data._lockstep[0]
    # The letters of EMNIST start at 1.
    first = int(name == "EMNIST" and data.split == "letters")
    classes = first + classes_of(name, part, count, _classes(data, known) - first)
    return pictures(name, part, known.shape, classes), classes


def _fill_tensors(data: Any, known: Known, part: str, count: int) -> None:
    images, classes = _drawn(data, known, part, count)
    data.data, data.targets = torch.from_numpy(images[..., 0].copy()), torch.from_numpy(classes)
    if data._lockstep[0] == "QMNIST":
        # The digit, and seven columns about its writer and source.
        data.targets = torch.nn.functional.pad(data.targets[:, None], (0, 7))


def _take_tensors(data: Any, index: int) -> Sample:
    target = data.targets[index]
    if target.ndim and data.compat:
        target = target[0]
    return image_of(data.data[index].numpy()), target if target.ndim else int(target)


def _fill_arrays(data: Any, known: Known, part: str, count: int) -> None:
    data.data, classes = _drawn(data, known, part, count)
    data.targets = classes.tolist()


def _fill_planes(data: Any, known: Known, part: str, count: int) -> None:
    images, data.labels = _drawn(data, known, part, count)
    data.data = images.transpose(0, 3, 1, 2).copy()
    if part == "unlabeled":
        data.labels[:] = -1


def _painted(name: str, part: str, shape: Shape, path: str) -> Any:
    """Return the picture that belongs to a path of a stand-in folder."""
    folder, file = os.path.split(path)
    number = int(os.path.splitext(file)[0])
    return image_of(picture(name, part, shape, int(os.path.basename(folder)), number))


def _fill_folder(data: Any, known: Known, part: str, count: int) -> None:
    name = data._lockstep[0]
    data.targets = classes_of(name, part, count, known.classes).tolist()
    data.samples = data.imgs = [
        (os.path.join(data.root, str(kind), f"{number}.png"), kind)
        for number, kind in enumerate(data.targets)
    ]
    data.loader = partial(_painted, name, part, known.shape)


def _fill_faces(data: Any, known: Known, part: str, count: int) -> None:
    drawn = [classes_of("CelebA", f"{part} {number}", count, 2) for number in range(40)]
    data.attr = torch.from_numpy(np.stack(drawn, axis=1))
    data.attr_names = [str(number) for number in range(40)]
    data.identity = torch.arange(count)[:, None] % 100 + 1
    height, width, _ = known.shape
    data.bbox = torch.tensor([[0, 0, width, height]]).repeat(count, 1)
    data.landmarks_align = torch.full((count, 10), width // 2)
    data.filename = [f"{number}.jpg" for number in range(count)]


def _take_faces(data: Any, index: int) -> Sample:
    part, shape = data.split, KNOWN["CelebA"].shape
    kinds = [data.target_type] if isinstance(data.target_type, str) else data.target_type
    columns = {"attr": data.attr, "bbox": data.bbox, "landmarks": data.landmarks_align}
    targets = [
        data.identity[index, 0] if kind == "identity" else columns[kind][index] for kind in kinds
    ]
    image = image_of(picture("CelebA", part, shape, int(data.attr[index, 0]), index))
    return image, targets[0] if len(targets) == 1 else tuple(targets) or None


def _fill_rooms(data: Any, known: Known, part: str, count: int) -> None:
    # `classes` is a part, or a list of classes, each with the part behind it.
    given = data.classes
    data.labels = classes_of("LSUN", part, count, 10 if isinstance(given, str) else len(given))
    data.length = count


def _take_rooms(data: Any, index: int) -> Sample:
    kind = int(data.labels[index])
    return image_of(picture("LSUN", _part(data), KNOWN["LSUN"].shape, kind, index)), kind


_TENSORS = _fill_tensors, _take_tensors
_ARRAYS = _fill_arrays, lambda data, i: (image_of(data.data[i]), data.targets[i])
_PLANES = (
    _fill_planes,
    lambda data, i: (image_of(data.data[i].transpose(1, 2, 0)), int(data.labels[i])),
)
_FOLDER = _fill_folder, lambda data, i: (data.loader(data.samples[i][0]), data.samples[i][1])
KNOWN = {
    "MNIST": Known((28, 28, 1), 10, 60_000, 10_000, *_TENSORS),
    "FashionMNIST": Known((28, 28, 1), 10, 60_000, 10_000, *_TENSORS),
    "KMNIST": Known((28, 28, 1), 10, 60_000, 10_000, *_TENSORS),
    "QMNIST": Known((28, 28, 1), 10, 60_000, 60_000, *_TENSORS),
    "EMNIST": Known((28, 28, 1), 10, 0, 0, *_TENSORS),
    "CIFAR10": Known((32, 32, 3), 10, 50_000, 10_000, *_ARRAYS),
    "CIFAR100": Known((32, 32, 3), 100, 50_000, 10_000, *_ARRAYS),
    "SVHN": Known((32, 32, 3), 10, 73_257, 26_032, *_PLANES),
    "STL10": Known((96, 96, 3), 10, 5_000, 8_000, *_PLANES),
    # Nobody knows the classes of a folder that is missing. Two fit every model.
    "ImageFolder": Known((256, 256, 3), 2, 0, 0, *_FOLDER),
    "ImageNet": Known((256, 256, 3), 1000, 1_281_167, 50_000, *_FOLDER),
    "CelebA": Known((218, 178, 3), 2, 162_770, 19_962, _fill_faces, _take_faces),
    "LSUN": Known((256, 256, 3), 10, 0, 0, _fill_rooms, _take_rooms),
}
