"""What the transforms do, once, on tensors; images are turned into one and back.

Shapes, types and ranges are torchvision's. Pixels need not be: resizing has no antialiasing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor


class InterpolationMode(Enum):
    """How pixels between pixels are found."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def pil_to_tensor(pic: Any) -> Tensor:
    """The bytes of an image: channel, height, width."""
    array = np.array(pic, copy=True)
    if array.dtype == bool:
        array = array.astype(np.uint8)
    array = array[..., None] if array.ndim == 2 else array
    return torch.from_numpy(array).permute(2, 0, 1).contiguous()


def to_tensor(pic: Any) -> Tensor:
    """An image, or an array of height, width and channel; bytes become numbers from 0 to 1."""
    tensor = pil_to_tensor(pic)
    return tensor.div(255).to(torch.get_default_dtype()) if tensor.dtype == torch.uint8 else tensor


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """An image of a tensor (channel first) or of an array (channel last)."""
    if isinstance(pic, Tensor):
        pic = pic[None] if pic.ndim == 2 else pic
        if pic.is_floating_point():
            pic = pic.mul(255).clamp(0, 255).to(torch.uint8)
        pic = pic.cpu().permute(1, 2, 0).numpy()
    elif pic.dtype.kind == "f":
        pic = pic.astype(np.uint8)
    pic = pic[..., 0] if pic.ndim == 3 and pic.shape[2] == 1 else pic
    return Image.fromarray(np.ascontiguousarray(pic))


def on_tensor(image: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The change of an image, or of a tensor."""
    if isinstance(image, Tensor):
        return change(image)
    return to_pil_image(change(pil_to_tensor(image)))


def _smooth(image: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A change that computes: bytes are rounded after it."""

    def rounded(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point():
            return change(tensor)
        return change(tensor.float()).round().clamp(0, 255).to(tensor.dtype)

    return on_tensor(image, rounded)


def convert_image_dtype(image: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The same picture in another type: bytes go to 255, other numbers to 1."""
    if image.is_floating_point() == dtype.is_floating_point:
        return image.to(dtype)
    if dtype.is_floating_point:
        return image.to(dtype).div(torch.iinfo(image.dtype).max)
    return image.mul(torch.iinfo(dtype).max + 0.999).to(dtype)


def normalize(
    tensor: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False
) -> Tensor:
    """Less the mean, by the deviation, for each channel."""
    if not tensor.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {tensor.dtype}.")
    means, deviations = (
        torch.as_tensor(v, dtype=tensor.dtype, device=tensor.device).view(-1, 1, 1)
        for v in (mean, std)
    )
    tensor = tensor if inplace else tensor.clone()
    return tensor.sub_(means).div_(deviations)


def get_image_size(img: Any) -> list[int]:
    """Width and height."""
    return [img.shape[-1], img.shape[-2]] if isinstance(img, Tensor) else list(img.size)


def get_dimensions(img: Any) -> list[int]:
    """Channels, height, width."""
    width, height = get_image_size(img)
    channels = img.shape[-3] if isinstance(img, Tensor) else len(img.getbands())
    return [channels, height, width]


def resize(
    img: Any,
    size: int | Sequence[int],
    interpolation: Any = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: Any = True,
) -> Any:
    """To (height, width); a single number is that of the shorter side."""
    width, height = get_image_size(img)
    sizes = [size] if isinstance(size, int) else list(size)
    if len(sizes) == 1:
        scale = sizes[0] / min(width, height)
        if max_size is not None:
            scale = min(scale, max_size / max(width, height))
        sizes = [max(1, int(height * scale)), max(1, int(width * scale))]
    if sizes == [height, width]:
        return img

    nearest = interpolation in (InterpolationMode.NEAREST, InterpolationMode.NEAREST_EXACT)
    how: dict[str, Any] = {"mode": "nearest"} if nearest else {"mode": "bilinear"}

    def change(tensor: Tensor) -> Tensor:
        whole = tensor if tensor.ndim == 4 else tensor[None]
        out = torch.nn.functional.interpolate(whole, sizes, **how)
        return out if tensor.ndim == 4 else out[0]

    return _smooth(img, change)


def pad(
    img: Any, padding: int | Sequence[int], fill: Any = 0, padding_mode: str = "constant"
) -> Any:
    """More pixels: all sides, (left and right, top and bottom), or (left, top, right, bottom)."""
    sides = [padding] if isinstance(padding, int) else list(padding)
    left, top, right, bottom = sides * (4 // len(sides))
    value = fill[0] if isinstance(fill, Sequence) else fill

    def change(tensor: Tensor) -> Tensor:
        around = (left, right, top, bottom)
        if padding_mode == "constant":
            return torch.nn.functional.pad(tensor, around, value=value)
        mode = {"edge": "replicate", "symmetric": "reflect"}.get(padding_mode, padding_mode)
        whole = tensor if tensor.ndim == 4 else tensor[None]
        out = torch.nn.functional.pad(whole.float(), around, mode=mode).to(tensor.dtype)
        return out if tensor.ndim == 4 else out[0]

    return on_tensor(img, change)


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """A part; what lies outside is black."""
    wide, high = get_image_size(img)
    missing = (
        max(-left, 0),
        max(-top, 0),
        max(left + width - wide, 0),
        max(top + height - high, 0),
    )
    if any(missing):
        img, top, left = pad(img, missing), max(top, 0), max(left, 0)
    return on_tensor(img, lambda t: t[..., top : top + height, left : left + width])


def center_crop(img: Any, output_size: int | Sequence[int]) -> Any:
    """The middle."""
    sizes = [output_size] if isinstance(output_size, int) else list(output_size)
    height, width = sizes * (2 // len(sizes))
    wide, high = get_image_size(img)
    return crop(img, round((high - height) / 2), round((wide - width) / 2), height, width)


def resized_crop(
    img: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: int | Sequence[int],
    interpolation: Any = InterpolationMode.BILINEAR,
    antialias: Any = True,
) -> Any:
    """A part, in another size."""
    return resize(crop(img, top, left, height, width), size, interpolation)


def hflip(img: Any) -> Any:
    """Left is right."""
    return on_tensor(img, lambda tensor: tensor.flip(-1))


def vflip(img: Any) -> Any:
    """Top is bottom."""
    return on_tensor(img, lambda tensor: tensor.flip(-2))


def affine(
    img: Any,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: float | Sequence[float],
    interpolation: Any = InterpolationMode.NEAREST,
    fill: Any = 0,
    center: Any = None,
) -> Any:
    """Turned, moved, scaled and sheared about the middle; the size stays."""
    width, height = get_image_size(img)
    shears = [shear, 0.0] if isinstance(shear, int | float) else list(shear)
    turn, lean = math.radians(angle), math.radians(-shears[0])
    cos, sin = math.cos(turn) / scale, math.sin(turn) / scale
    # From a pixel of the result to the one it comes from; -1 and 1 are the edges.
    matrix = torch.tensor(
        [
            [cos, (sin - math.tan(lean) * cos) * height / width, -2 * translate[0] / width],
            [-sin * width / height, cos + math.tan(lean) * sin, -2 * translate[1] / height],
        ]
    )
    mode = "bilinear" if interpolation == InterpolationMode.BILINEAR else "nearest"

    def change(tensor: Tensor) -> Tensor:
        whole = tensor if tensor.ndim == 4 else tensor[None]
        grid = torch.nn.functional.affine_grid(
            matrix.to(whole)[None].expand(len(whole), -1, -1), list(whole.shape), False
        )
        out = torch.nn.functional.grid_sample(whole, grid, mode, "zeros", False)
        return out if tensor.ndim == 4 else out[0]

    return _smooth(img, change)


def rotate(
    img: Any,
    angle: float,
    interpolation: Any = InterpolationMode.NEAREST,
    expand: bool = False,
    center: Any = None,
    fill: Any = 0,
) -> Any:
    """Turned, against the clock."""
    if expand:
        raise NotImplementedError("The stand-in torchvision does not expand: install torchvision.")
    return affine(img, -angle, (0.0, 0.0), 1.0, 0.0, interpolation)


def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """Without colour."""

    def change(tensor: Tensor) -> Tensor:
        if tensor.shape[-3] == 3:
            shares = torch.tensor([0.299, 0.587, 0.114]).to(tensor).view(3, 1, 1)
            tensor = (tensor * shares).sum(-3, keepdim=True)
        return tensor.expand(*tensor.shape[:-3], num_output_channels, *tensor.shape[-2:])

    return _smooth(img, change)


to_grayscale = rgb_to_grayscale


def _blend(img: Any, other: Callable[[Tensor], Tensor], factor: float) -> Any:
    def change(tensor: Tensor) -> Tensor:
        mixed = factor * tensor + (1 - factor) * other(tensor)
        # What was a byte is cut to 255 afterwards.
        return mixed.clamp(0, 1) if float(tensor.max()) <= 1 else mixed.clamp(0, 255)

    return _smooth(img, change)


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """0 is black, 1 the same."""
    return _blend(img, torch.zeros_like, brightness_factor)


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """0 is grey, 1 the same."""
    return _blend(
        img, lambda t: rgb_to_grayscale(t).mean((-3, -2, -1), keepdim=True), contrast_factor
    )


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """0 is without colour, 1 the same."""
    return _blend(img, lambda t: rgb_to_grayscale(t, t.shape[-3]), saturation_factor)


def erase(img: Tensor, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Tensor:
    """A part is replaced."""
    img = img if inplace else img.clone()
    img[..., i : i + h, j : j + w] = v
    return img
