"""A small convolutional network that learns small photographs fast.

A fixed convolution whitens patches of 2x2 pixels, and six 3x3 convolutions follow, as in Jordan
2024, "94% on CIFAR-10 in 3.29 seconds on a single GPU", after Page 2019, "How to train your
ResNet".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

# The covariance of two pixels of a photograph, by colour (red-red, red-green, red-blue,
# green-green, green-blue, blue-blue) and by place: mean products over all 2x2 patches of the
# training images of CIFAR-10, normalised per channel and averaged over mirror images.
_SAME = (0.991796, 0.902477, 0.774908, 0.991426, 0.898451, 0.989451)
_BESIDE = (0.920294, 0.834946, 0.716885, 0.919683, 0.836078, 0.929027)
_BELOW = (0.908380, 0.824082, 0.707147, 0.908598, 0.825849, 0.918890)
_DIAGONAL = (0.856938, 0.775834, 0.666078, 0.857172, 0.781354, 0.875620)

NOISE = 5e-4
"""Added to the variances, so that whitening does not amplify directions of little variance."""
BIAS_SCALE = 8.0
"""Factor between a bias and its parameter; it multiplies the learning rate by its square."""
SCORE_SCALE = 1 / 9
"""Factor of the scores: without it, the smoothed loss of the first steps is far too large."""


def whitening() -> Tensor:
    """Return filters (12, 3, 2, 2) whose outputs on photographs are uncorrelated, variance 1.

    >>> tuple(whitening().shape)
    (12, 3, 2, 2)
    """
    same, beside, below, diagonal = map(_symmetric, (_SAME, _BESIDE, _BELOW, _DIAGONAL))
    filters = []
    # The covariance looks the same from all four corners of a patch. So its eigenvectors are the
    # four sign patterns of a patch, each times the eigenvectors of one 3x3 matrix of colours.
    for right, down in ((1, 1), (-1, 1), (1, -1), (-1, -1)):
        colours = same + right * beside + down * below + right * down * diagonal
        variances, vectors = torch.linalg.eigh(colours)
        # The sign of an eigenvector is arbitrary: make the largest component positive.
        largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
        vectors = vectors * largest.sign() / (variances + NOISE).sqrt()
        signs = torch.tensor([[1, right], [down, right * down]], dtype=torch.float64) / 2
        filters.append(vectors.T[:, :, None, None] * signs)
    return torch.cat(filters)


def _symmetric(triangle: Sequence[float]) -> Tensor:
    rr, rg, rb, gg, gb, bb = triangle
    return torch.tensor([[rr, rg, rb], [rg, gg, gb], [rb, gb, bb]], dtype=torch.float64)


class Bias(nn.Module):
    """Adds a learnt offset to each channel, `BIAS_SCALE` times its parameter."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Add the offsets, in the precision of `x`: autocast would widen the sum."""
        return x + (BIAS_SCALE * self.offset).to(x.dtype)


class Block(nn.Module):
    """Two 3x3 convolutions; the image is halved between them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm1, self.bias1 = _norm(outputs), Bias(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2, self.bias2 = _norm(outputs), Bias(outputs)
        for conv in (self.conv1, self.conv2):
            # The first filters pass their input on, as the shortcut of a residual block would.
            nn.init.dirac_(conv.weight[: conv.in_channels].data)

    def forward(self, x: Tensor) -> Tensor:
        """Halve height and width; return `outputs` channels."""
        x = functional.gelu(self.bias1(self.norm1(_halved(self.conv1(x)))))
        return functional.gelu(self.bias2(self.norm2(self.conv2(x))))


def _norm(channels: int) -> nn.Module:
    """Build a batch norm without weights, whose statistics forget fast: a run has few steps."""
    return nn.BatchNorm2d(channels, eps=1e-12, momentum=0.4, affine=False)


def _halved(x: Tensor) -> Tensor:
    """Return the largest value of each 2x2 square, without an odd last row or column."""
    if not torch.are_deterministic_algorithms_enabled():
        return functional.max_pool2d(x, 2)
    # On CUDA, torch refuses the gradient of max_pool2d as not deterministic.
    x = x[:, :, : x.shape[2] // 2 * 2, : x.shape[3] // 2 * 2]
    return x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).amax((3, 5))


class QuickNet(nn.Module):
    """Whitens patches, applies the blocks, and scores the largest response of each channel."""

    def __init__(self, widths: Sequence[int], classes: int, channels: int, whiten: bool) -> None:
        super().__init__()
        if whiten and channels != 3:
            raise ValueError(
                f"the whitening is made for colour photographs, not for {channels} channel(s): use "
                "whiten=False to learn the first layer"
            )
        first = 2 * 4 * channels
        self.patches = nn.Conv2d(channels, first, 2, bias=False)
        self.bias = Bias(first)
        if whiten:
            filters = whitening().float()
            # Use both signs: the activation lets hardly anything below zero pass.
            self.patches.weight.data.copy_(torch.cat([filters, -filters]))
            self.patches.weight.requires_grad_(False)
        self.blocks = nn.Sequential(*(Block(*pair) for pair in pairwise((first, *widths))))
        self.head = nn.Linear(widths[-1], classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return class scores; in evaluation, their mean over six views of each image."""
        if self.training:
            return self.scores(x)
        height, width = x.shape[2:]
        padded = functional.pad(x, (1, 1, 1, 1), mode="reflect")
        # The image itself counts as much as both shifts by a pixel along the diagonal together.
        views = (x, padded[:, :, :height, :width], padded[:, :, 2:, 2:])
        scores = [self.scores(view) + self.scores(view.flip(3)) for view in views]
        return (2 * scores[0] + scores[1] + scores[2]) / 8

    def scores(self, x: Tensor) -> Tensor:
        """Return the class scores of one view."""
        x = self.blocks(functional.gelu(self.bias(self.patches(x))))
        # The gradient of amax looks for the largest value again, and finds none if a compiler has
        # computed it again without rounding: use max.
        return self.head(x.flatten(2).max(2).values) * SCORE_SCALE


def quicknet(
    widths: Sequence[int] = (64, 256, 256),
    classes: int = 10,
    channels: int = 3,
    whiten: bool = True,
) -> nn.Module:
    """Build a block of two convolutions for each of `widths`; `whiten` fixes the first layer.

    >>> sum(p.numel() for p in quicknet().parameters())
    1971640
    """
    return QuickNet(widths, classes, channels, whiten)
