"""Record the random states from which ranks and data workers draw."""

from __future__ import annotations

import random
import sys
import zlib
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils import fetch

from lockstep.probes.patching import replaces
from lockstep.probes.recorder import Recorder

FETCHES = 3
"""How many batches of each pass to look at."""


def install(recorder: Recorder) -> None:
    """Watch the fetchers of all data sets."""
    seen: dict[int, int] = {}

    @replaces("fetch", fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher)
    def fetched(original: Any, self: Any, index: Any) -> Any:
        # Every pass has a fetcher of its own.
        count = seen[id(self)] = seen.get(id(self), -1) + 1
        if count >= FETCHES:
            return original(self, index)
        before = states()
        data = original(self, index)
        after = states()
        drew = {name: state for name, state in before.items() if after[name] != state}
        if drew:
            info = get_worker_info()
            if info is not None and not recorder.worker:
                recorder.is_worker()  # spawned, not forked
            recorder.note(
                "drew",
                worker=info.id if info is not None else None,
                number=count,
                states=drew,
                index=zlib.crc32(repr(index).encode()),
                dataset=type(self.dataset).__name__,
                streams=isinstance(self.dataset, IterableDataset),
            )
        return data


def states() -> dict[str, int]:
    """Return a number for the state of each generator."""
    found = {"torch": zlib.crc32(torch.get_rng_state().numpy().tobytes())}
    # Not hash(): the hash of None differs between processes.
    found["random"] = zlib.crc32(repr(random.getstate()).encode())
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        _name, keys, position, *rest = numpy.get_state()
        found["numpy"] = zlib.crc32(keys.tobytes(), zlib.crc32(repr((position, rest)).encode()))
    return found


def dropout_state() -> Tensor:
    """Return the state of dropout's generator: the GPU's, once the script uses a GPU."""
    # With fake_cuda, CUDA is never initialized.
    return torch.cuda.get_rng_state() if torch.cuda.is_initialized() else torch.get_rng_state()


def set_dropout_state(state: Tensor) -> None:
    """Set the state of dropout's generator."""
    if torch.cuda.is_initialized():
        torch.cuda.set_rng_state(state)
    else:
        torch.set_rng_state(state)
