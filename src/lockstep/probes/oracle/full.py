"""Products of float32 with all their digits, for one step.

GPUs convolve in TF32 unless told otherwise, and there a batch in parts and a batch as a whole may
differ by percents in the first layers of a deep network, as a bug would.
"""

from __future__ import annotations

from typing import Any

import torch

_BACKENDS: Any = torch.backends
_PLACES = (_BACKENDS.cudnn.conv, _BACKENDS.cudnn.rnn, _BACKENDS.cuda.matmul)


class FullDigits:
    """On from `begin` to `end`; what the script has set is kept in between."""

    def __init__(self) -> None:
        self._before: list[str] | None = None

    def begin(self) -> None:
        """Once; later calls change nothing."""
        if self._before is None:
            self._before = [place.fp32_precision for place in _PLACES]
            for place in _PLACES:
                place.fp32_precision = "ieee"

    def end(self) -> None:
        """As it was."""
        for place, before in zip(_PLACES, self._before or (), strict=False):
            place.fp32_precision = before
