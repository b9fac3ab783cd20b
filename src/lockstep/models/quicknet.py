"""A small convolutional network that learns small photographs fast.

Six 3x3 convolutions behind a fixed one that whitens patches of 2x2 pixels, as in Jordan 2024, "94%
on CIFAR-10 in 3.29 seconds on a single GPU", after Page 2019, "How to train your ResNet".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

# What two pixels of a photograph have in common, by colour (red-red, red-green, red-blue,
# green-green, green-blue, blue-blue) and by place: mean products over all 2x2 patches of
# CIFAR-10's training images, normalised per channel. Averaged over mirror images.
_SAME = (0.991796, 0.902477, 0.774908, 0.991426, 0.898451, 0.989451)
_BESIDE = (0.920294, 0.834946, 0.716885, 0.919683, 0.836078, 0.929027)
_BELOW = (0.908380, 0.824082, 0.707147, 0.908598, 0.825849, 0.918890)
_DIAGONAL = (0.856938, 0.775834, 0.666078, 0.857172, 0.781354, 0.875620)

NOISE = 5e-4
"""Added to the variances, so that whitening does not blow up what is hardly there."""
BIAS_SCALE = 8.0
"""A bias counts so many times its parameter, which multiplies its learning rate by the square."""
SCORE_SCALE = 1 / 9
"""Scores start small: the smoothed loss of the first steps would otherwise be far too large."""


def whitening() -> Tensor:
    """Filters (12, 3, 2, 2) whose outputs on photographs are uncorrelated and of variance 1.

    >>> tuple(whitening().shape)
    (12, 3, 2, 2)
    """
    same, beside, below, diagonal = map(_symmetric, (_SAME, _BESIDE, _BELOW, _DIAGONAL))
    filters = []
    # The covariance looks the same from all four corners of a patch. So its eigenvectors are the
    # four sign patterns of a patch, each with the eigenvectors of its own 3x3 matrix of colours.
    for right, down in ((1, 1), (-1, 1), (1, -1), (-1, -1)):
        colours = same + right * beside + down * below + right * down * diagonal
        variances, vectors = torch.linalg.eigh(colours)
        # An eigenvector has no sign of its own: the largest component shall be positive.
        largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
        vectors = vectors * largest.sign() / (variances + NOISE).sqrt()
        signs = torch.tensor([[1, right], [down, right * down]], dtype=torch.float64) / 2
        filters.append(vectors.T[:, :, None, None] * signs)
    return torch.cat(filters)


def _symmetric(triangle: Sequence[float]) -> Tensor:
    rr, rg, rb, gg, gb, bb = triangle
    return torch.tensor([[rr, rg, rb], [rg, gg, gb], [rb, gb, bb]], dtype=torch.float64)


class Bias(nn.Module):
    """One learnt offset per channel, `BIAS_SCALE` times its parameter."""

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
            # The first filters hand their input on, as the shortcut of a residual block would.
            nn.init.dirac_(conv.weight[: conv.in_channels].data)

    def forward(self, x: Tensor) -> Tensor:
        """Half the height and width, `outputs` channels."""
        x = functional.gelu(self.bias1(self.norm1(_halved(self.conv1(x)))))
        return functional.gelu(self.bias2(self.norm2(self.conv2(x))))


def _norm(channels: int) -> nn.Module:
    """Without a weight of its own; statistics that forget fast, as a run has few steps."""
    return nn.BatchNorm2d(channels, eps=1e-12, momentum=0.4, affine=False)


def _halved(x: Tensor) -> Tensor:
    """The largest value of each 2x2 square; an odd last row or column is left out."""
    if not torch.are_deterministic_algorithms_enabled():
        return functional.max_pool2d(x, 2)
    # On CUDA the gradient of max_pool2d counts as one that is not deterministic, and is refused.
    x = x[:, :, : x.shape[2] // 2 * 2, : x.shape[3] // 2 * 2]
    return x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).amax((3, 5))


class QuickNet(nn.Module):
    """Whitened patches, three blocks, the largest response of each channel, one dense layer."""

    def __init__(self, widths: Sequence[int], classes: int, channels: int, whiten: bool) -> None:
        super().__init__()
        if whiten and channels != 3:
            raise ValueError(
                f"the whitening is that of colour photographs, not of {channels} channel(s): use "
                "whiten=False, and the first layer is learnt"
            )
        first = 2 * 4 * channels
        self.patches = nn.Conv2d(channels, first, 2, bias=False)
        self.bias = Bias(first)
        if whiten:
            filters = whitening().float()
            # Both signs, as the activation lets hardly anything below zero pass.
            self.patches.weight.data.copy_(torch.cat([filters, -filters]))
            self.patches.weight.requires_grad_(False)
        self.blocks = nn.Sequential(*(Block(*pair) for pair in pairwise((first, *widths))))
        self.head = nn.Linear(widths[-1], classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Images to class scores; in evaluation the mean over six views of each image."""
        if self.training:
            return self.scores(x)
        height, width = x.shape[2:]
        padded = functional.pad(x, (1, 1, 1, 1), mode="reflect")
        # As it is, and shifted by a pixel along the diagonal: both ways together count as much.
        views = (x, padded[:, :, :height, :width], padded[:, :, 2:, 2:])
        scores = [self.scores(view) + self.scores(view.flip(3)) for view in views]
        return (2 * scores[0] + scores[1] + scores[2]) / 8

    def scores(self, x: Tensor) -> Tensor:
        """The scores of each image as it is."""
        x = self.blocks(functional.gelu(self.bias(self.patches(x))))
        # Not amax: its gradient looks for the largest value again, and finds none where a compiler
        # has computed it anew without rounding.
        return self.head(x.flatten(2).max(2).values) * SCORE_SCALE


def quicknet(
    widths: Sequence[int] = (64, 256, 256),
    classes: int = 10,
    channels: int = 3,
    whiten: bool = True,
) -> nn.Module:
    """A block of two convolutions for each of `widths`; with `whiten` the first layer is fixed.

    >>> sum(p.numel() for p in quicknet().parameters())
    1971640
    """
    return QuickNet(widths, classes, channels, whiten)
