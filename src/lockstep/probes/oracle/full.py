"""Compute float32 products with all their digits, for one step.

By default GPUs convolve in TF32. There a batch in parts and the same batch as a whole may differ by
percents in the first layers of a deep network, as they would with a bug.
"""

from __future__ import annotations

from typing import Any

import torch

_BACKENDS: Any = torch.backends
_PLACES = (_BACKENDS.cudnn.conv, _BACKENDS.cudnn.rnn, _BACKENDS.cuda.matmul)


class FullDigits:
    """Full precision from `begin` to `end`, which restores the script's settings."""

    def __init__(self) -> None:
        self._before: list[str] | None = None

    def begin(self) -> None:
        """Switch to full precision; later calls change nothing."""
        if self._before is None:
            self._before = [place.fp32_precision for place in _PLACES]
            for place in _PLACES:
                place.fp32_precision = "ieee"

    def end(self) -> None:
        """Restore the script's settings."""
        for place, before in zip(_PLACES, self._before or (), strict=False):
            place.fp32_precision = before
