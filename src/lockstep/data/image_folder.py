"""Read a folder of images, with one sub-folder for each class; data workers decode them.

    photos/train/cat/1.jpg       photos/cat/1.jpg
    photos/train/dog/2.jpg  or   photos/dog/2.jpg     with test_share=0.1
    photos/val/cat/3.jpg         photos/dog/3.jpg

Images travel to the device as bytes. The device mirrors (the recipe's `augment`) and normalises
them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
import random
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lockstep.data.dataset import Data
from lockstep.data.images import normalise
from lockstep.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

TRAIN, TESTS = "train", ("val", "validation", "test")
SUFFIXES = (
    *(b".jpg", b".jpeg", b".png", b".webp", b".bmp", b".gif"),
    *(b".tif", b".tiff", b".ppm", b".pgm"),
)
# The usual values for the training images of ImageNet (ILSVRC 2012).
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ASPECT = 4 / 3
TRIES = 10
ORIENTATION = 0x0112

Box = tuple[float, float, float, float]
"""Left, top, right and bottom of a part of an image, in pixels."""


def folder(
    root: str | Path,
    *,
    size: int = 224,
    test_share: float | None = None,
    resize: int | None = None,
    area: tuple[float, float] = (0.08, 1.0),
    samples: int | None = None,
    test_samples: int | None = None,
) -> Data:
    """Train on `root/train/CLASS/*` and test on `root/val/CLASS/*` (or validation, or test).

    If `root` holds the classes themselves, set aside `test_share` of their images for the test.

    For training, cut a random part (a share of the `area`) and resize it to `size` x `size`. For
    the test, resize the shorter side to `resize` (default: 8/7 of `size`, 256 for 224) and cut out
    the middle. `samples` and `test_samples` keep that many images, spread over the classes.
    """
    resize = round(size * 8 / 7) if resize is None else resize
    _check_numbers(size, resize, area, test_share)
    if importlib.util.find_spec("PIL") is None:
        raise DataError("Pillow, which decodes images, is missing: pip install 'lockstep[images]'")
    train, test = _split(Path(root).expanduser(), test_share)
    return Data(
        train=Images(_some(train, samples, "samples"), size, partial(random_box, area=area)),
        test=Images(
            _some(test, test_samples, "test_samples"),
            size,
            partial(centre_box, share=size / resize),
        ),
        prepare=partial(normalise, mean=IMAGENET_MEAN, std=IMAGENET_STD),
    )


class Files:
    """Files below one folder and the class of each, in the same order on every machine."""

    def __init__(
        self, root: Path, classes: list[str], names: list[bytes], targets: list[int]
    ) -> None:
        """Keep `names`, relative to `root`, and `targets`, which are places in `classes`."""
        self.root, self.classes = root, classes
        # One block instead of a list: reading an element of a list changes its reference count, so
        # every worker would end up with its own copy of a million names.
        self._text = b"".join(names)
        self._ends = np.cumsum([len(name) for name in names], dtype=np.int64)
        self.targets = np.array(targets, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.targets)

    def name(self, index: int) -> bytes:
        """Return one name, relative to the root."""
        return self._text[self._ends[index - 1] if index else 0 : self._ends[index]]

    def keep(self, chosen: np.ndarray) -> Files:
        """Return the files at the places `chosen`."""
        names = [self.name(index) for index in chosen.tolist()]
        return Files(self.root, self.classes, names, self.targets[chosen].tolist())

    def hashes(self) -> np.ndarray:
        """Return a number in [0, 1) for each file, which depends only on its name."""
        names = (self.name(index) for index in range(len(self)))
        digests = b"".join(
            hashlib.blake2b(n, digest_size=8, key=b"lockstep").digest() for n in names
        )
        return (np.frombuffer(digests, dtype=">u8") >> 11) * 2.0**-53


class Images:
    """A map-style data set of (bytes [3, size, size], class) that reads each image on demand."""

    def __init__(self, files: Files, size: int, choose: Callable[[int, int], Box]) -> None:
        """Read `files`; `choose` returns the part to cut out of an image of a width and height."""
        self.files, self.size, self.choose = files, size, choose

    @property
    def classes(self) -> list[str]:
        """Names of the classes; a target is a place in this list."""
        return self.files.classes

    def path(self, index: int) -> Path:
        """Return the path of a sample."""
        return self.files.root / os.fsdecode(self.files.name(index))

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Return one sample; randomness comes from `random`, which lockstep seeds per sample."""
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        path = self.path(index)
        try:
            with warnings.catch_warnings():
                # Pillow also warns of damaged camera data in an image whose pixels are fine.
                warnings.simplefilter("ignore")
                image = _read(path, self.size, self.choose)
        except DataError:
            raise
        # Catch every type: a damaged file can make Pillow raise almost any of them.
        except Exception as error:
            raise DataError(
                f"{path} cannot be read as an image: {type(error).__name__}: {error}. Replace the "
                "file, or move it out of the folder."
            ) from None
        pixels = np.asarray(image).transpose(2, 0, 1).copy()
        return torch.from_numpy(pixels), int(self.files.targets[index])


def random_box(width: int, height: int, area: tuple[float, float]) -> Box:
    """Choose a part with a random share of the area and aspect (Szegedy et al. 2015, sec. 6)."""
    for _ in range(TRIES):
        pixels = width * height * random.uniform(*area)
        aspect = ASPECT ** random.uniform(-1, 1)
        across, down = round(math.sqrt(pixels * aspect)), round(math.sqrt(pixels / aspect))
        if 1 <= across <= width and 1 <= down <= height:
            left, top = random.randint(0, width - across), random.randint(0, height - down)
            return left, top, left + across, top + down
    # Hardly any part of a long, thin image has such a size and aspect: take the middle.
    return _middle(width, height, min(width, height * ASPECT), min(height, width * ASPECT))


def centre_box(width: int, height: int, share: float) -> Box:
    """Return the square in the middle, whose side is a `share` of the shorter side."""
    side = min(width, height) * share
    return _middle(width, height, side, side)


def _middle(width: int, height: int, across: float, down: float) -> Box:
    left, top = (width - across) / 2, (height - down) / 2
    return left, top, left + across, top + down


def _read(path: Path, size: int, choose: Callable[[int, int], Box]) -> Image.Image:
    """Read the chosen part of an image, upright and in RGB, resized to a square of `size`."""
    from PIL import Image

    with Image.open(path) as image:
        if image.format not in ("JPEG", "MPO"):
            # Pillow turns a TIFF when it loads it, and reads the orientation of a PNG only then.
            image.load()
        turn = _turn(image)
        width, height = image.size
        box = choose(height, width) if turn in _SIDEWAYS.values() else choose(width, height)
        # Decoding a JPEG to 1/2, 1/4 or 1/8 of its size takes a fraction of the work, as it leaves
        # out most of the inverse cosine transform. The size of the chosen part, not of the image,
        # sets the scale: the part must not become coarser than the result.
        ratio = min(box[2] - box[0], box[3] - box[1]) / size
        drafted = image.draft(None, (math.ceil(width / ratio), math.ceil(height / ratio)))
        shrink = drafted[1][2] / width if drafted else 1.0
        whole = _rgb(image, path)
        if turn is not None:
            whole = whole.transpose(Image.Transpose[turn])
        left, top, right, bottom = (edge * shrink for edge in box)
        # Sums of fractions may pass the last pixel by a rounding error, which Pillow refuses.
        box = max(left, 0), max(top, 0), min(right, whole.width), min(bottom, whole.height)
        return whole.resize((size, size), Image.Resampling.BILINEAR, box=box)


# The orientations of EXIF, and the name in PIL.Image.Transpose that undoes each.
_UPRIGHT = {2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM"}
_SIDEWAYS = {5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE", 8: "ROTATE_90"}


def _turn(image: Image.Image) -> str | None:
    """Return the transposition that makes an image upright, or None."""
    try:
        return (_UPRIGHT | _SIDEWAYS).get(image.getexif().get(ORIENTATION, 1))
    except Exception:
        # Camera data are damaged more often than pixels, and most viewers then ignore them.
        return None


def _rgb(image: Image.Image, path: Path) -> Image.Image:
    """Return three channels of bytes; transparent parts become white."""
    from PIL import Image

    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith(("I", "F")):
        raise DataError(
            f"{path} has pixels of more than 8 bits (mode {image.mode}), and how to scale them "
            "depends on what they mean. Convert the images to 8 bits."
        )
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def _check_numbers(
    size: int, resize: int, area: tuple[float, float], test_share: float | None
) -> None:
    if size < 1:
        raise DataError(f"size={size}: give 1 or more, such as 224.")
    if resize < size:
        raise DataError(
            f"resize={resize} leaves test images smaller than size={size}: give {size} or more."
        )
    if len(area) != 2 or not 0 < area[0] <= area[1] <= 1:
        raise DataError(
            f"area={area}: give a range of shares above 0 and up to 1, such as (0.08, 1)."
        )
    if test_share is not None and not 0 < test_share < 1:
        raise DataError(f"test_share={test_share}: give a share between 0 and 1, such as 0.1.")


def _split(root: Path, test_share: float | None) -> tuple[Files, Files]:
    """Return the files to train on and the files to test on."""
    if not root.is_dir():
        problem = "is a file" if root.is_file() else "does not exist"
        raise DataError(f"{root} {problem}. Give the folder that holds train and val.")
    folders = _folders(root)
    tests = [name for name in TESTS if name in folders]
    if TRAIN in folders and tests:
        if test_share is not None:
            raise DataError(
                f"test_share={test_share}, but {root} has its own test images in {tests[0]}. Leave "
                "test_share out."
            )
        train = _scan(root / TRAIN)
        return train, _scan(root / tests[0], train.classes)
    if test_share is None:
        raise DataError(
            f"{root} does not hold {TRAIN} and one of {', '.join(TESTS)}. To test on a tenth of "
            "its images, give test_share=0.1."
        )
    # The name alone decides: an image stays on its side when others come, go, or move with it.
    every = _scan(root / TRAIN if folders == [TRAIN] else root)
    is_test = every.hashes() < test_share
    if is_test.all() or not is_test.any():
        raise DataError(
            f"test_share={test_share} of the {len(every)} images of {root} leaves none to "
            f"{'train' if is_test.all() else 'test'} on: change it, or add images."
        )
    return every.keep(np.flatnonzero(~is_test)), every.keep(np.flatnonzero(is_test))


def _scan(root: Path, known: list[str] | None = None) -> Files:
    """Find all images below `root`; its sub-folders are the classes, all of them `known`."""
    classes = _folders(root)
    if not classes:
        raise DataError(
            f"{root} holds no folders. Put the images of each class into one folder, such as "
            f"{root / 'cat' / '1.jpg'}"
        )
    strange = [name for name in classes if name not in (known or classes)]
    if strange:
        raise DataError(
            f"{root} holds classes that are not trained on: {_first_few(strange)}. The folders of "
            f"{TRAIN} must hold them too."
        )
    found = {name: sorted(_images(os.fsencode(root / name), b"")) for name in classes}
    if empty := [name for name, names in found.items() if not names]:
        kinds = b", ".join(SUFFIXES).decode()
        raise DataError(
            f"{root} holds classes without images ({kinds}): {_first_few(empty)}. Fill or remove "
            "these folders."
        )
    places = {name: place for place, name in enumerate(known or classes)}
    names = [os.fsencode(name) + b"/" + rest for name in classes for rest in found[name]]
    targets = [places[name] for name in classes for _ in found[name]]
    return Files(root, known or classes, names, targets)


def _folders(root: Path) -> list[str]:
    """Return the sub-folders in the order of their bytes, which no locale changes."""
    try:
        with os.scandir(root) as entries:
            names = [e.name for e in entries if e.is_dir() and not e.name.startswith(".")]
    except OSError as error:
        raise DataError(f"{root} cannot be listed: {error}.") from error
    return sorted(names, key=os.fsencode)


def _images(path: bytes, prefix: bytes) -> list[bytes]:
    """Find the images below `path` without a stat for each: a million would take minutes."""
    found, below = [], []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.startswith(b"."):
                    continue
                # The listing holds the kind of each entry; only links need a look-up.
                if entry.is_dir():
                    below.append(entry.name)
                elif entry.name.lower().endswith(SUFFIXES):
                    found.append(prefix + entry.name)
    except OSError as error:
        raise DataError(f"{os.fsdecode(path)} cannot be listed: {error}.") from error
    for name in below:
        found += _images(path + b"/" + name, prefix + name + b"/")
    return found


def _some(files: Files, count: int | None, name: str) -> Files:
    """Keep the first `count` files by hash: the first by name would be of one class."""
    if count is None:
        return files
    if not 1 <= count <= len(files):
        raise DataError(
            f"{name}={count}, but there are {len(files)} images: give 1 to {len(files)}, or leave "
            "it out to use all."
        )
    return files.keep(np.sort(np.argsort(files.hashes(), kind="stable")[:count]))


def _first_few(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
