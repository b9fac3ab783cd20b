"""The memory that a process needs for training, counted tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class ActivationBytes:
    """Counts the bytes of activations that autograd keeps for the backward pass, and their peak.

    Autograd passes every tensor that it saves to this class. Shared memory counts once, and
    parameters do not count.
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self.now = self.peak = 0
        self._ignored = {p.untyped_storage().data_ptr() for p in parameters}
        self._users: dict[int, int] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count during a forward and a backward pass."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack):
            yield

    def _pack(self, tensor: Tensor) -> _Saved:
        storage = tensor.untyped_storage()
        place, size = storage.data_ptr(), storage.nbytes()
        counted = place not in self._ignored
        if counted:
            users = self._users.get(place, 0)
            self._users[place] = users + 1
            if not users:
                self.now += size
                self.peak = max(self.peak, self.now)
        # Detach: autograd would never free an output that its own graph node keeps.
        return _Saved(self, tensor.detach(), place if counted else None, size)

    def release(self, place: int, size: int) -> None:
        """Record that one tensor of this memory is gone."""
        self._users[place] -= 1
        if not self._users[place]:
            del self._users[place]
            self.now -= size


class _Saved:
    def __init__(self, kept: ActivationBytes, tensor: Tensor, place: int | None, size: int) -> None:
        self.kept, self.tensor, self.place, self.size = kept, tensor, place, size

    def __del__(self) -> None:
        if self.place is not None:
            self.kept.release(self.place, self.size)


def _unpack(saved: _Saved) -> Tensor:
    return saved.tensor


def state_bytes(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, int]:
    """Return the bytes of parameters, gradients and the optimizer's state."""
    parameters = list(module.parameters())
    kept: Iterable[Any] = (v for state in optimizer.state.values() for v in state.values())
    return {
        "parameters": sum(p.nbytes for p in parameters),
        "gradients": sum(p.grad.nbytes for p in parameters if p.grad is not None),
        "optimizer": sum(v.nbytes for v in kept if isinstance(v, Tensor) and v.dim()),
    }
