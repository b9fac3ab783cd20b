"""PowerSGD: send the gradient of a matrix as the product of two thin ones (Vogels et al. 2019).

Each replica adds what it could not send so far to its gradient M. With the thin matrix Q of the
step before, P = MQ is averaged over the replicas and made orthonormal, Q = M'P is averaged, and all
replicas use PQ' as the gradient. Each keeps the rest, M - PQ', for the next step. At first
gradients turn faster than Q can follow, so they are sent whole while the learning rate warms up.

torch has this as a hook too. It dies on gloo with more than one bucket, refuses parameters without
dimensions, and keeps M - P mean(Q)', so that the replicas' memories drift apart without bound.
Here each replica uses its own Q: every step projects the drift away, and the mean is the same.
"""

from collections import Counter
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep.engine.exchange.compression.choice import Compression

RANK = 4
"""Columns of the thin matrices."""
WORTH = 2
"""A matrix is compressed if less than one in this many elements is left."""


def compresses(shape: torch.Size) -> bool:
    """Tell whether a gradient of this shape is sent as two thin matrices.

    >>> [compresses(torch.Size(s)) for s in ([64, 32, 3, 3], [16, 16], [64], [])]
    [True, False, False, False]
    """
    rows, columns = _matrix(shape)
    return WORTH * RANK * (rows + columns) < rows * columns


def payload(parameter: Tensor) -> int:
    """Return how many elements are averaged for a parameter in one step."""
    compressed = compresses(parameter.shape)
    return RANK * sum(_matrix(parameter.shape)) if compressed else parameter.numel()


def _matrix(shape: torch.Size) -> tuple[int, int]:
    rows = shape[0] if shape else 1
    return rows, shape.numel() // max(1, rows)


class PowerSGD:
    """The exchange, and the matrices that it keeps for each parameter from step to step.

    The first `whole` steps compress nothing.
    """

    def __init__(self, whole: int = 0) -> None:
        self.whole = whole
        self.steps: Counter[Tensor] = Counter()
        self.missing: dict[Tensor, Tensor] = {}
        self.thin: dict[Tensor, Tensor] = {}

    def __call__(
        self, parameters: list[Tensor], buffer: Tensor, group: dist.ProcessGroup | None
    ) -> None:
        """Replace the gradients in the flat `buffer` by their approximate mean."""
        whole, split = [], []
        gradients = buffer.split([p.numel() for p in parameters])
        for p, gradient in zip(parameters, gradients, strict=True):
            self.steps[p] += 1
            if compresses(p.shape) and self.steps[p] > self.whole:
                self._remember(p, gradient).add_(gradient.view(_matrix(p.shape)))
                split.append((p, gradient))
            else:
                whole.append(gradient)
        means = _mean([*whole, *(self.missing[p] @ self.thin[p] for p, _ in split)], group)
        for gradient in whole:
            gradient.copy_(means.pop(0))
        left = [torch.linalg.qr(mean).Q for mean in means]
        right = [self.missing[p].T @ q for (p, _), q in zip(split, left, strict=True)]
        for (p, gradient), q, own, mean in zip(
            split, left, right, _mean(right, group), strict=True
        ):
            self.missing[p].addmm_(q, own.T, alpha=-1)
            gradient.view(_matrix(p.shape)).copy_(q @ mean.T)
            # Only directions count, and squares of small gradients would vanish over the steps. A
            # column of zeros has no direction: keep the old one.
            unit = nn.functional.normalize(mean, dim=0)
            self.thin[p] = torch.where(mean.any(0), unit, self.thin[p])

    def _remember(self, p: Tensor, gradient: Tensor) -> Tensor:
        if p not in self.missing:
            wide = torch.promote_types(gradient.dtype, torch.float32)
            self.missing[p] = gradient.new_zeros(_matrix(p.shape), dtype=wide)
            # The same on all replicas, and no draw from the generators of the training.
            generator = torch.Generator().manual_seed(p.numel())
            start = torch.randn(_matrix(p.shape)[1], RANK, generator=generator)
            self.thin[p] = start.to(self.missing[p])
        # A loaded state is in host memory.
        self.missing[p] = self.missing[p].to(gradient.device)
        self.thin[p] = self.thin[p].to(gradient.device)
        return self.missing[p]

    def bookmark(self) -> Callable[[], None]:
        """Return a function that goes back to what is remembered now."""
        steps, thin = self.steps.copy(), self.thin.copy()
        missing = {p: own.clone() for p, own in self.missing.items()}

        def go_back() -> None:
            self.steps, self.thin = steps.copy(), thin.copy()
            self.missing = {p: own.clone() for p, own in missing.items()}

        return go_back

    def state(self, model: nn.Module) -> dict[str, Tensor]:
        """Return what is remembered, by name: the same on all replicas.

        Everything above is linear in M, so only the mean of what is missing counts. Saved once, it
        continues the run on any number of replicas.
        """
        found = {}
        for name, p in model.named_parameters():
            if p in self.missing:
                found[f"missing/{name}"] = _mean([self.missing[p]], None)[0]
                found[f"thin/{name}"] = self.thin[p]
        return found

    def load(self, model: nn.Module, state: dict[str, Tensor], step: int) -> None:
        """Continue from the state that was saved after `step`."""
        for name, p in model.named_parameters():
            self.steps[p] = step
            if f"missing/{name}" in state:
                self.missing[p] = state[f"missing/{name}"].clone()
                self.thin[p] = state[f"thin/{name}"].clone()


def _mean(tensors: list[Tensor], group: dist.ProcessGroup | None) -> list[Tensor]:
    """Return the mean of each tensor over the replicas, from one all-reduce."""
    if not tensors:
        return []
    flat = torch.cat([t.flatten() for t in tensors])
    dist.all_reduce(flat, group=group)
    flat.div_(dist.get_world_size())
    parts = flat.split([t.numel() for t in tensors])
    return [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)]


def _make(whole: int) -> tuple[PowerSGD, PowerSGD]:
    exchange = PowerSGD(whole)
    return exchange, exchange


COMPRESSION = Compression(
    name="powersgd",
    sent_bytes=lambda p: payload(p) * max(4, p.element_size()),
    make=_make,
    # Thin matrices are small: two all-reduces for all of them cost less than any overlap saves.
    one_bucket=True,
    graph_obstacle="PowerSGD counts its steps on the host",
)
