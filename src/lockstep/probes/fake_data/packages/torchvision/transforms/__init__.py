"""Transforms with the arguments of torchvision's. They draw from torch's generator, as those do."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.probes.fake_data.notes import note

from . import functional
from .functional import InterpolationMode

Size = int | Sequence[int]
Range = float | Sequence[float]


def _uniform(low: float, high: float) -> float:
    return float(torch.empty(1).uniform_(low, high))


def _chance(p: float) -> bool:
    return bool(torch.rand(1) < p)


def _pair(size: Size) -> tuple[int, int]:
    sizes = [size] if isinstance(size, int) else list(size)
    return sizes[0], sizes[-1]


def _around(spread: Range) -> tuple[float, float]:
    return (-spread, spread) if isinstance(spread, int | float) else (spread[0], spread[1])


class Compose:
    """One after the other."""

    def __init__(self, transforms: Sequence[Any]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        """Change an image."""
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        return f"Compose({', '.join(map(str, self.transforms))})"


class ToTensor:
    """An image as numbers from 0 to 1."""

    def __call__(self, pic: Any) -> Tensor:
        """Change an image."""
        return functional.to_tensor(pic)


class PILToTensor:
    """An image as bytes."""

    def __call__(self, pic: Any) -> Tensor:
        """Change an image."""
        return functional.pil_to_tensor(pic)


class ToPILImage:
    """A tensor or an array as an image."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        """Change a tensor."""
        return functional.to_pil_image(pic, self.mode)


class Lambda:
    """Any function."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        """Change whatever it takes."""
        return self.lambd(img)


class _Transform(nn.Module):
    def forward(self, img: Any) -> Any:
        """Change an image."""
        raise NotImplementedError


class ConvertImageDtype(_Transform):
    """Another type of number."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, img: Tensor) -> Tensor:
        """Change a tensor."""
        return functional.convert_image_dtype(img, self.dtype)


class Normalize(_Transform):
    """Less the mean, by the deviation."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        super().__init__()
        self.mean, self.std, self.inplace = mean, std, inplace

    def forward(self, img: Tensor) -> Tensor:
        """Change a tensor."""
        return functional.normalize(img, self.mean, self.std, self.inplace)


class Resize(_Transform):
    """Another size."""

    def __init__(
        self,
        size: Size,
        interpolation: Any = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: Any = True,
    ) -> None:
        super().__init__()
        self.size, self.interpolation, self.max_size = size, interpolation, max_size

    def forward(self, img: Any) -> Any:
        """Change an image."""
        return functional.resize(img, self.size, self.interpolation, self.max_size)


Scale = Resize


class CenterCrop(_Transform):
    """The middle."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = _pair(size)

    def forward(self, img: Any) -> Any:
        """Change an image."""
        return functional.center_crop(img, self.size)


class Pad(_Transform):
    """More pixels at the sides."""

    def __init__(self, padding: Size, fill: Any = 0, padding_mode: str = "constant") -> None:
        super().__init__()
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def forward(self, img: Any) -> Any:
        """Change an image."""
        return functional.pad(img, self.padding, self.fill, self.padding_mode)


class RandomCrop(_Transform):
    """A part of a size, from anywhere."""

    def __init__(
        self,
        size: Size,
        padding: Size | None = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__()
        self.size, self.padding, self.pad_if_needed = _pair(size), padding, pad_if_needed
        self.fill, self.padding_mode = fill, padding_mode

    @staticmethod
    def get_params(img: Any, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Top, left, height, width."""
        width, height = functional.get_image_size(img)
        high, wide = output_size
        if height < high or width < wide:
            raise ValueError(f"Crop size {output_size} is larger than image {(height, width)}.")
        top = int(torch.randint(0, height - high + 1, (1,)))
        return top, int(torch.randint(0, width - wide + 1, (1,))), high, wide

    def forward(self, img: Any) -> Any:
        """Change an image."""
        if self.padding is not None:
            img = functional.pad(img, self.padding, self.fill, self.padding_mode)
        width, height = functional.get_image_size(img)
        lacking = max(self.size[1] - width, 0), max(self.size[0] - height, 0)
        if self.pad_if_needed and any(lacking):
            img = functional.pad(img, lacking, self.fill, self.padding_mode)
        return functional.crop(img, *self.get_params(img, self.size))


class _Flip(_Transform):
    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p


class RandomHorizontalFlip(_Flip):
    """Left is right, now and then."""

    def forward(self, img: Any) -> Any:
        """Change an image."""
        return functional.hflip(img) if _chance(self.p) else img


class RandomVerticalFlip(_Flip):
    """Top is bottom, now and then."""

    def forward(self, img: Any) -> Any:
        """Change an image."""
        return functional.vflip(img) if _chance(self.p) else img


class RandomResizedCrop(_Transform):
    """A part of any size, in one size."""

    def __init__(
        self,
        size: Size,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        interpolation: Any = InterpolationMode.BILINEAR,
        antialias: Any = True,
    ) -> None:
        super().__init__()
        self.size, self.scale, self.ratio = _pair(size), scale, ratio
        self.interpolation = interpolation

    @staticmethod
    def get_params(
        img: Any, scale: tuple[float, float], ratio: tuple[float, float]
    ) -> tuple[int, int, int, int]:
        """Top, left, height, width."""
        width, height = functional.get_image_size(img)
        area = height * width * _uniform(*scale)
        shape = math.exp(_uniform(math.log(ratio[0]), math.log(ratio[1])))
        wide = min(max(round(math.sqrt(area * shape)), 1), width)
        high = min(max(round(math.sqrt(area / shape)), 1), height)
        return RandomCrop.get_params(img, (high, wide))

    def forward(self, img: Any) -> Any:
        """Change an image."""
        part = self.get_params(img, self.scale, self.ratio)
        return functional.resized_crop(img, *part, self.size, self.interpolation)


class RandomRotation(_Transform):
    """Turned by any angle."""

    def __init__(
        self,
        degrees: Range,
        interpolation: Any = InterpolationMode.NEAREST,
        expand: bool = False,
        center: Any = None,
        fill: Any = 0,
    ) -> None:
        super().__init__()
        self.degrees, self.interpolation, self.expand = _around(degrees), interpolation, expand

    def forward(self, img: Any) -> Any:
        """Change an image."""
        return functional.rotate(img, _uniform(*self.degrees), self.interpolation, self.expand)


class RandomAffine(_Transform):
    """Turned, moved, scaled and sheared."""

    def __init__(
        self,
        degrees: Range,
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: Range | None = None,
        interpolation: Any = InterpolationMode.NEAREST,
        fill: Any = 0,
        center: Any = None,
    ) -> None:
        super().__init__()
        self.degrees, self.interpolation = _around(degrees), interpolation
        self.translate, self.scale = translate or (0.0, 0.0), scale or (1.0, 1.0)
        self.shear = _around(shear or 0.0)

    def forward(self, img: Any) -> Any:
        """Change an image."""
        angle = _uniform(*self.degrees)
        sizes = zip(functional.get_image_size(img), self.translate, strict=True)
        moved = [_uniform(-share * size, share * size) for size, share in sizes]
        scale = _uniform(self.scale[0], self.scale[1])
        return functional.affine(
            img, angle, moved, scale, _uniform(*self.shear), self.interpolation
        )


class ColorJitter(_Transform):
    """Brighter, harder, more or less colourful. The hue is left as it is."""

    def __init__(
        self,
        brightness: Range = 0.0,
        contrast: Range = 0.0,
        saturation: Range = 0.0,
        hue: Range = 0.0,
    ) -> None:
        super().__init__()
        self.brightness, self.contrast, self.saturation, self.hue = (
            (max(0.0, 1 - v), 1 + v) if isinstance(v, int | float) else (v[0], v[1])
            for v in (brightness, contrast, saturation, hue)
        )

    def forward(self, img: Any) -> Any:
        """Change an image."""
        img = functional.adjust_brightness(img, _uniform(*self.brightness))
        img = functional.adjust_contrast(img, _uniform(*self.contrast))
        return functional.adjust_saturation(img, _uniform(*self.saturation))


class Grayscale(_Transform):
    """Without colour."""

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__()
        self.num_output_channels = num_output_channels

    def forward(self, img: Any) -> Any:
        """Change an image."""
        return functional.rgb_to_grayscale(img, self.num_output_channels)


class RandomGrayscale(_Transform):
    """Without colour, now and then; the channels stay."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__()
        self.p = p

    def forward(self, img: Any) -> Any:
        """Change an image."""
        channels = functional.get_dimensions(img)[0]
        return functional.rgb_to_grayscale(img, channels) if _chance(self.p) else img


class RandomErasing(_Transform):
    """A part of a tensor is lost, now and then."""

    def __init__(
        self,
        p: float = 0.5,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: Any = 0,
        inplace: bool = False,
    ) -> None:
        super().__init__()
        self.p, self.scale, self.ratio = p, scale, ratio
        self.value, self.inplace = value, inplace

    def forward(self, img: Tensor) -> Tensor:
        """Change a tensor."""
        if not _chance(self.p):
            return img
        part = RandomResizedCrop.get_params(img, self.scale, self.ratio)
        _, _, height, width = part
        value = self.value
        if value == "random":
            value = torch.empty(img.shape[-3], height, width).normal_()
        elif isinstance(value, Sequence):
            value = torch.tensor(value).to(img).view(-1, 1, 1)
        return functional.erase(img, *part, value, self.inplace)


class RandomApply(_Transform):
    """All of them, or none."""

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        super().__init__()
        self.transforms, self.p = transforms, p

    def forward(self, img: Any) -> Any:
        """Change an image."""
        return Compose(self.transforms)(img) if _chance(self.p) else img


class RandomChoice(_Transform):
    """One of them."""

    def __init__(self, transforms: Sequence[Any], p: Sequence[float] | None = None) -> None:
        super().__init__()
        self.transforms, self.p = transforms, p

    def forward(self, img: Any) -> Any:
        """Change an image."""
        return random.choices(self.transforms, weights=self.p)[0](img)


class RandomOrder(_Transform):
    """All of them, in any order."""

    def __init__(self, transforms: Sequence[Any]) -> None:
        super().__init__()
        self.transforms = transforms

    def forward(self, img: Any) -> Any:
        """Change an image."""
        return Compose(random.sample(list(self.transforms), len(self.transforms)))(img)


class _Same(_Transform):
    """Draws, as the real one does, and leaves the image as it is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        note(f"{type(self).__name__}: leaves images as they are")

    def forward(self, img: Any) -> Any:
        """Draw."""
        torch.rand(1)
        return img


class AutoAugmentPolicy:
    """Names of policies."""

    IMAGENET, CIFAR10, SVHN = "imagenet", "cifar10", "svhn"


class AutoAugment(_Same):
    """Not here."""


class RandAugment(_Same):
    """Not here."""


class TrivialAugmentWide(_Same):
    """Not here."""


class AugMix(_Same):
    """Not here."""


class GaussianBlur(_Same):
    """Not here."""


class RandomPerspective(_Same):
    """Not here."""


class RandomAdjustSharpness(_Same):
    """Not here."""


class RandomAutocontrast(_Same):
    """Not here."""


class RandomEqualize(_Same):
    """Not here."""


class RandomSolarize(_Same):
    """Not here."""
