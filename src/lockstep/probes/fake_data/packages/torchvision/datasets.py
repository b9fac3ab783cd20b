"""Data sets with the arguments of torchvision's, and stand-in data in them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from PIL import Image
from torch.utils.data import Dataset

from lockstep.probes.fake_data.datasets import fill, image_of, item, items
from lockstep.probes.fake_data.pictures import classes_of, picture

Change = Callable[[Any], Any]
IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class VisionDataset(Dataset[Any]):
    """A folder and two transforms."""

    def __init__(
        self,
        root: Any = None,
        transforms: Callable[..., Any] | None = None,
        transform: Change | None = None,
        target_transform: Change | None = None,
    ) -> None:
        self.root = os.path.expanduser(root) if isinstance(root, str) else root
        self.transform, self.target_transform = transform, target_transform
        self.transforms = transforms

    def __getitem__(self, index: Any) -> Any:
        """One sample."""
        raise NotImplementedError

    def __len__(self) -> int:
        """How many samples there are."""
        raise NotImplementedError


class _StandIn(VisionDataset):
    data: Any
    __getitem__ = item
    __iter__ = items

    def __len__(self) -> int:
        return len(self.data)


class MNIST(_StandIn):
    """Digits: 28x28, grey."""

    def __init__(
        self,
        root: Any,
        train: bool = True,
        transform: Change | None = None,
        target_transform: Change | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        self.targets: Any
        fill(self, self._name)

    _name = "MNIST"

    @property
    def train_data(self) -> Any:
        """An old name."""
        return self.data

    @property
    def train_labels(self) -> Any:
        """An old name."""
        return self.targets

    test_data, test_labels = train_data, train_labels


class FashionMNIST(MNIST):
    """Clothes."""

    _name = "FashionMNIST"


class KMNIST(MNIST):
    """Japanese letters."""

    _name = "KMNIST"


class EMNIST(MNIST):
    """Letters and digits."""

    _name = "EMNIST"

    def __init__(self, root: Any, split: str, **kwargs: Any) -> None:
        self.split = split
        super().__init__(root, **kwargs)


class QMNIST(MNIST):
    """Digits, with their history if `compat` is off."""

    _name = "QMNIST"

    def __init__(
        self,
        root: Any,
        what: str | None = None,
        compat: bool = True,
        train: bool = True,
        **kwargs: Any,
    ) -> None:
        self.what, self.compat = what or ("train" if train else "test"), compat
        super().__init__(root, self.what == "train", **kwargs)


class CIFAR10(MNIST):
    """Things: 32x32, in colour."""

    _name = "CIFAR10"


class CIFAR100(CIFAR10):
    """The same in a hundred classes."""

    _name = "CIFAR100"


class SVHN(_StandIn):
    """House numbers: 32x32, in colour."""

    def __init__(
        self,
        root: Any,
        split: str = "train",
        transform: Change | None = None,
        target_transform: Change | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.split = split
        self.labels: Any
        fill(self, "SVHN")


class STL10(_StandIn):
    """Things: 96x96, in colour."""

    def __init__(
        self,
        root: Any,
        split: str = "train",
        folds: int | None = None,
        transform: Change | None = None,
        target_transform: Change | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.split, self.folds = split, folds
        fill(self, "STL10")


class DatasetFolder(VisionDataset):
    """Files of a folder that is there, a sub-folder for each class."""

    classes: list[str]

    def __init__(
        self,
        root: Any,
        loader: Change,
        extensions: Sequence[str] | None = None,
        transform: Change | None = None,
        target_transform: Change | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.loader, self.extensions = loader, extensions
        if extensions is not None:
            endings = tuple(extensions)
            is_valid_file = is_valid_file or (lambda path: path.lower().endswith(endings))
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = self.imgs = [
            (path, self.class_to_idx[name])
            for name in self.classes
            for path in _files(os.path.join(self.root, name))
            if is_valid_file is None or is_valid_file(path)
        ]
        self.targets = [kind for _, kind in self.samples]
        if not self.samples and not allow_empty:
            raise FileNotFoundError(f"Found no valid file in {self.root}.")

    def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
        """The sub-folders, by name."""
        names = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
        if not names:
            raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
        return names, {name: number for number, name in enumerate(names)}

    def __getitem__(self, index: Any) -> Any:
        """One sample."""
        if hasattr(self, "_lockstep"):
            return item(self, index)
        path, target = self.samples[index]
        sample = self.loader(path)
        if self.transform is not None:
            sample = self.transform(sample)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return sample, target

    def __len__(self) -> int:
        """How many samples there are."""
        return len(self.samples)

    __iter__ = items


def _files(folder: str) -> list[str]:
    return sorted(os.path.join(place, n) for place, _, names in os.walk(folder) for n in names)


def default_loader(path: str) -> Any:
    """An image, in colour."""
    with Image.open(path) as image:
        return image.convert("RGB")


class ImageFolder(DatasetFolder):
    """Images of a folder; stand-in ones where it is missing."""

    def __init__(
        self,
        root: Any,
        transform: Change | None = None,
        target_transform: Change | None = None,
        loader: Change = default_loader,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        try:
            super().__init__(
                root,
                loader,
                IMG_EXTENSIONS if is_valid_file is None else None,
                transform,
                target_transform,
                is_valid_file,
                allow_empty,
            )
        except FileNotFoundError:
            self.__dict__.pop("classes", None)
            fill(self, "ImageFolder")


class ImageNet(ImageFolder):
    """A thousand classes of things, 256x256."""

    def __init__(self, root: Any, split: str = "train", **kwargs: Any) -> None:
        self.split = split
        changes = {name: kwargs.get(name) for name in ("transform", "target_transform")}
        VisionDataset.__init__(self, root, **changes)
        fill(self, "ImageNet")


class CelebA(_StandIn):
    """Faces: 178 wide, 218 high, with 40 attributes."""

    def __init__(
        self,
        root: Any,
        split: str = "train",
        target_type: str | list[str] = "attr",
        transform: Change | None = None,
        target_transform: Change | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.split, self.target_type = split, target_type
        self.attr: Any
        fill(self, "CelebA")

    def __len__(self) -> int:
        """How many samples there are."""
        return len(self.attr)


class LSUN(_StandIn):
    """Rooms: 256x256."""

    def __init__(
        self,
        root: Any,
        classes: str | list[str] = "train",
        transform: Change | None = None,
        target_transform: Change | None = None,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.classes = classes
        self.length: int
        fill(self, "LSUN")

    def __len__(self) -> int:
        """How many samples there are."""
        return self.length


class FakeData(VisionDataset):
    """Images of any size, as the script asks for them."""

    def __init__(
        self,
        size: int = 1000,
        image_size: tuple[int, int, int] = (3, 224, 224),
        num_classes: int = 10,
        transform: Change | None = None,
        target_transform: Change | None = None,
        random_offset: int = 0,
    ) -> None:
        super().__init__(None, transform=transform, target_transform=target_transform)
        self.size, self.num_classes, self.image_size = size, num_classes, image_size
        self.random_offset = random_offset
        self._kinds = classes_of("FakeData", str(random_offset), size, num_classes)

    def __getitem__(self, index: Any) -> Any:
        """One sample."""
        if not 0 <= index < self.size:
            raise IndexError(f"sample {index} of {self.size}")
        channels, height, width = self.image_size
        target = int(self._kinds[index])
        part = str(self.random_offset)
        array = picture("FakeData", part, (height, width, channels), target, int(index))
        image = image_of(array[..., 0] if channels == 1 else array)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __len__(self) -> int:
        """How many samples there are."""
        return self.size
