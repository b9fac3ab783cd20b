"""Augmentation: keyed per sample, and what a plain loop over the images would do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from lockstep.data.augment import cutout, flip, flip_alternating, pad_crop
from lockstep.data.keyed import SampleKeys

SHAPES = [(1, 8, 8), (3, 8, 8), (3, 5, 11), (1, 12, 4), (2, 1, 1)]
KINDS = [torch.uint8, torch.float32, torch.float64]
ALL = [
    partial(pad_crop, padding=2),
    flip,
    flip_alternating,
    partial(cutout, size=3),
]
each = pytest.mark.parametrize(
    "function", ALL, ids=["pad_crop", "flip", "flip_alternating", "cutout"]
)


def images_of(indices: Tensor, shape: tuple[int, ...] = (3, 6, 7), dtype=torch.uint8) -> Tensor:
    """Images that depend on their index alone, without zeros: those are the border's."""
    numbers = torch.arange(shape[0] * shape[1] * shape[2]).view(shape)
    return ((numbers + 13 * indices[:, None, None, None]) % 250 + 1).to(dtype)


def keys_of(indices: Tensor, epoch: int = 7, seed: int = 3) -> SampleKeys:
    return SampleKeys(seed, epoch, indices)


def augmented(function: Callable[..., Tensor], indices: Tensor, epoch: int = 7) -> Tensor:
    return function(images_of(indices), keys_of(indices, epoch))


@each
def test_sample_1234_in_epoch_7_looks_the_same_in_any_company(function):
    alone = augmented(function, torch.tensor([1234]))[0]
    generator = torch.Generator().manual_seed(0)
    for size in (2, 5, 64):
        others = torch.randperm(1000, generator=generator)[:size]
        place = size // 2
        others[place] = 1234
        assert torch.equal(augmented(function, others)[place], alone)
        assert torch.equal(augmented(function, others.flip(0))[size - 1 - place], alone)


@each
def test_sample_1234_looks_different_in_other_epochs(function):
    looks = {
        tuple(augmented(function, torch.tensor([1234]), e).flatten().tolist()) for e in range(9)
    }
    assert len(looks) > 1


@each
def test_the_images_that_came_in_are_left_as_they_were(function):
    indices = torch.arange(20)
    images = images_of(indices)
    function(images, keys_of(indices))
    assert torch.equal(images, images_of(indices))


@each
@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shape_and_dtype_stay(function, shape, dtype):
    indices = torch.arange(9)
    out = function(images_of(indices, shape, dtype), keys_of(indices))
    assert out.shape == (9, *shape)
    assert out.dtype == dtype


@each
def test_the_memory_layout_of_the_images_does_not_matter(function):
    indices = torch.arange(30)
    plain = function(images_of(indices), keys_of(indices))
    strided = images_of(indices).contiguous(memory_format=torch.channels_last)
    assert torch.equal(function(strided, keys_of(indices)), plain)
    view = images_of(indices).transpose(2, 3).contiguous().transpose(2, 3)
    assert torch.equal(function(view, keys_of(indices)), plain)


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("padding", [0, 1, 4])
def test_pad_crop_is_a_shift_of_each_image_by_its_own_numbers(padding, shape, dtype):
    indices = torch.arange(100, 140)
    images, keys = images_of(indices, shape, dtype), keys_of(indices)
    tops = keys.integers("pad_crop.top", 2 * padding + 1).tolist()
    lefts = keys.integers("pad_crop.left", 2 * padding + 1).tolist()
    _, height, width = shape
    expected = torch.zeros_like(images)
    for number, (top, left) in enumerate(zip(tops, lefts, strict=True)):
        for row in range(height):
            for column in range(width):
                y, x = row + top - padding, column + left - padding
                if 0 <= y < height and 0 <= x < width:
                    expected[number, :, row, column] = images[number, :, y, x]
    assert torch.equal(pad_crop(images, keys, padding), expected)


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("padding", [0, 1, 4])
def test_pad_crop_with_reflection_is_torchs_padding_and_a_crop(padding: int, dtype):
    indices = torch.arange(100, 140)
    images, keys = images_of(indices, (3, 5, 11), dtype), keys_of(indices)
    padded = torch.nn.functional.pad(images.double(), (padding,) * 4, mode="reflect").to(dtype)
    tops = keys.integers("pad_crop.top", 2 * padding + 1).tolist()
    lefts = keys.integers("pad_crop.left", 2 * padding + 1).tolist()
    expected = [
        image[:, top : top + 5, left : left + 11]
        for image, top, left in zip(padded, tops, lefts, strict=True)
    ]
    assert torch.equal(pad_crop(images, keys, padding, mode="reflect"), torch.stack(expected))


def test_pad_crop_refuses_a_reflection_deeper_than_the_image():
    indices = torch.arange(3)
    with pytest.raises(ValueError, match="5x11 pixels have no reflection 5 pixels deep: use a p"):
        pad_crop(images_of(indices, (3, 5, 11)), keys_of(indices), 5, mode="reflect")


def test_pad_crop_without_padding_changes_nothing():
    indices = torch.arange(20)
    assert torch.equal(pad_crop(images_of(indices), keys_of(indices), 0), images_of(indices))


def test_pad_crop_uses_every_shift():
    indices = torch.arange(2000)
    images = torch.zeros(2000, 1, 7, 7)
    images[:, :, 3, 3] = 1
    places = pad_crop(images, keys_of(indices), padding=2).flatten(1).argmax(1)
    # 25 shifts, 80 images each: none is missing unless some are impossible.
    assert set(places.tolist()) == {
        7 * row + column for row in range(1, 6) for column in range(1, 6)
    }


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_flip_mirrors_each_image_or_leaves_it(shape, dtype):
    indices = torch.arange(50)
    images, keys = images_of(indices, shape, dtype), keys_of(indices)
    mirrored = keys.uniform("flip") < 0.3
    out = flip(images, keys, share=0.3)
    for image, result, mirror in zip(images, out, mirrored.tolist(), strict=True):
        assert torch.equal(result, image[:, :, range(shape[2] - 1, -1, -1)] if mirror else image)


def test_flip_of_a_share_of_nothing_and_of_all():
    indices = torch.arange(500)
    images, keys = images_of(indices), keys_of(indices)
    assert torch.equal(flip(images, keys, share=0.0), images)
    assert torch.equal(flip(images, keys, share=1.0), images.flip(3))


def test_flip_mirrors_the_share_that_was_asked_for():
    indices = torch.arange(10_000)
    images = torch.tensor([0.0, 1.0]).expand(10_000, 1, 1, 2)
    mirrored = flip(images, keys_of(indices), share=0.3)[:, 0, 0, 0].mean().item()
    # Binomial: deviation of sqrt(0.3 * 0.7 / 10^4) = 0.0046; five of them.
    assert abs(mirrored - 0.3) < 5 * 0.0046


def test_flips_alternate_so_that_two_epochs_show_both_sides_of_every_image():
    indices = torch.arange(10_000)
    images = torch.tensor([0.0, 1.0]).expand(10_000, 1, 1, 2)
    first, second, third = (flip_alternating(images, keys_of(indices, e)) for e in (4, 5, 6))
    assert torch.equal(first.flip(3), second)
    assert torch.equal(first, third)
    # Binomial: deviation of sqrt(0.25 / 10^4) = 0.005; five of them.
    assert abs(first[:, 0, 0, 0].mean().item() - 0.5) < 5 * 0.005
    other = flip_alternating(images, keys_of(indices, 4, seed=4))
    assert 0.4 < (first == other).float().mean().item() < 0.6


def test_alternating_flips_take_the_epoch_as_a_tensor():
    indices = torch.arange(50)
    images = images_of(indices)
    for epoch in (0, 1, 8, 9):
        number = flip_alternating(images, keys_of(indices, epoch))
        tensor = flip_alternating(images, SampleKeys(3, torch.tensor(epoch), indices))
        assert torch.equal(number, tensor)


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 8, 30])
def test_cutout_blanks_a_square_around_a_centre(size, shape, dtype):
    indices = torch.arange(40)
    images, keys = images_of(indices, shape, dtype), keys_of(indices)
    _, height, width = shape
    rows = keys.integers("cutout.row", height).tolist()
    columns = keys.integers("cutout.column", width).tolist()
    expected = images.clone()
    for number, (row, column) in enumerate(zip(rows, columns, strict=True)):
        top, left = row - size // 2, column - size // 2
        expected[
            number, :, max(top, 0) : max(top + size, 0), max(left, 0) : max(left + size, 0)
        ] = 0
    assert torch.equal(cutout(images, keys, size), expected)


def test_cutout_centres_lie_anywhere_in_the_image():
    indices = torch.arange(2000)
    holes = cutout(torch.ones(2000, 1, 4, 6), keys_of(indices), size=1) == 0
    assert holes.flatten(1).sum(1).eq(1).all()
    # 24 places, 83 images each.
    assert holes.any(0).all()


def test_augmentations_draw_independently_of_each_other():
    indices = torch.arange(20_000)
    images = torch.zeros(20_000, 1, 1, 3)
    images[:, :, :, 1] = 1
    shifted = pad_crop(images, keys_of(indices), padding=1)[:, 0].sum((1, 2)) > 0
    mirrored = keys_of(indices).uniform("flip") < 0.5
    together = (
        shifted & mirrored
    ).float().mean() - shifted.float().mean() * mirrored.float().mean()
    # The covariance of two fair bits deviates by 0.25 / sqrt(n) at most.
    assert abs(float(together)) < 5 * 0.25 / 20_000**0.5
