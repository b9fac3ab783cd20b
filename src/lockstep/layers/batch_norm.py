"""Batch norm whose statistics do not depend on how many replicas share the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from lockstep.layers.shards import Shards


class ShardBatchNorm(_BatchNorm):
    """Batch norm over each shard separately (ghost batch norm: Hoffer et al. 2017).

    Each shard keeps its own running statistics, so training needs no exchange. The engine takes
    their mean over all shards when it needs the running statistics of the whole batch.
    """

    shards: Shards
    shard_mean: Tensor
    shard_var: Tensor
    _seen: tuple[int, ...] = ()
    """The running statistics, and how often they had been written, when the engine last looked."""

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept any input with channels in the second dimension."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise shard by shard in training, and by the running statistics in evaluation."""
        if not self.training:
            return super().forward(input)
        if torch.compiler.is_compiling() and self.shards.even:
            return self._normalise_together(input)
        outputs = [self._normalise(row, piece) for row, piece in self.shards.cut(input)]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def remember(self) -> None:
        """Remember the running statistics, to notice when a program writes them."""
        self._seen = self._places()

    def adopt(self) -> None:
        """Let every shard start from the running statistics, if a program wrote just these.

        A moving average of weights does this, for example, with the statistics of its copy.
        """
        if self._seen and (now := self._places()) != self._seen:
            place, written, kept = now
            if place == self._seen[0] and written != self._seen[1] and kept == self._seen[2]:
                self.spread()
            self.remember()

    def spread(self) -> None:
        """Let every shard start from the running statistics."""
        assert self.running_mean is not None
        assert self.running_var is not None
        self.shard_mean.copy_(self.running_mean)
        self.shard_var.copy_(self.running_var)
        self.remember()

    def _places(self) -> tuple[int, ...]:
        """Return which tensor holds the mean, and how often statistics were written in place."""
        assert self.running_mean is not None
        assert self.running_var is not None
        written = self.running_mean._version + self.running_var._version
        return id(self.running_mean), written, self.shard_mean._version + self.shard_var._version

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        """Load weights and statistics: what the shards remember gives way to them."""
        super()._load_from_state_dict(state_dict, prefix, *others)
        if self.track_running_stats and f"{prefix}running_mean" in state_dict:
            self.spread()

    def _normalise(self, row: int, piece: Tensor) -> Tensor:
        # One value per channel has no variance to remember, and nothing to normalise by.
        several = piece.numel() > piece.shape[1]
        if self.shards.counts and not several:
            self.shards.lone = True
        counts = self.track_running_stats and self.shards.counts
        mean, var = None, None
        if counts and several:
            if not torch.compiler.is_compiling():
                self.adopt()
            mean, var = self.shard_mean[row], self.shard_var[row]
            if self.shards.again:
                # A checkpoint expects that as many tensors are saved as the first time.
                mean, var = mean.clone(), var.clone()
        out = torch.batch_norm(
            piece,
            self.weight,
            self.bias,
            mean,
            var,
            True,
            self.momentum or 0.0,
            self.eps,
            torch.backends.cudnn.enabled,
        )
        if mean is not None and not torch.compiler.is_compiling():
            self.remember()
        return out

    def _normalise_together(self, input: Tensor) -> Tensor:
        """Normalise all shards in one expression, which a compiler turns into few kernels."""
        rows, sizes = self.shards.rows, self.shards.sizes
        shards = input.unflatten(0, (len(sizes), -1))
        axes = [1, *range(3, shards.dim())]
        x = shards if input.dtype == torch.float64 else shards.float()
        var, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
        count = x.numel() // mean.numel()
        if self.track_running_stats and self.shards.counts and count > 1:
            own = slice(rows.start, rows.stop)
            with torch.no_grad():
                shape, share = (len(rows), self.shards.rounds, -1), self.momentum or 0.0
                means, variances = mean.view(shape), var.view(shape) * (count / (count - 1))
                for number in range(self.shards.rounds):
                    self.shard_mean[own].lerp_(means[:, number], share)
                    self.shard_var[own].lerp_(variances[:, number], share)
        out = (x - mean) * torch.rsqrt(var + self.eps)
        if self.affine:
            channels = [1, 1, -1] + [1] * (x.dim() - 3)
            out = out * self.weight.view(channels) + self.bias.view(channels)
        return out.to(input.dtype).flatten(0, 1)


class SyncedBatchNorm(_BatchNorm):
    """Batch norm over the global batch: `reduce` adds a small tensor over the replicas.

    torch.nn.SyncBatchNorm has no CPU path. The sum is differentiable because its gradient is the
    sum of the replicas' gradients.
    """

    shards: Shards
    reduce: Callable[[Tensor], Tensor]

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept any input with channels in the second dimension."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise by the mean and variance over all replicas."""
        if not self.training:
            return super().forward(input)
        axes = [axis for axis in range(input.dim()) if axis != 1]
        # At least float32: sums over a batch lose too much in half precision.
        x = input if input.dtype == torch.float64 else input.float()
        # A replica that has no samples computes a borrowed one, which must not count.
        weight = 1.0 if self.shards.counts else 0.0
        count = x.new_full((1,), weight * x.numel() / x.shape[1])
        shape = [1, -1] + [1] * (input.dim() - 2)
        total: Tensor = _sum(torch.cat([x.sum(axes) * weight, count]), self.reduce)
        mean = total[:-1] / total[-1]
        centred = x - mean.view(shape)
        # Squares of the centred values: subtracting squares of means would cancel.
        var = _sum(centred.square().sum(axes) * weight, self.reduce) / total[-1]
        if self.track_running_stats and self.running_mean is not None and not self.shards.again:
            assert self.running_var is not None
            with torch.no_grad():
                n = total[-1]
                # One value has no variance to remember.
                share = (self.momentum or 0.0) * (n > 1).to(mean.dtype)
                self.running_mean.lerp_(mean, share)
                self.running_var.lerp_(var * n / (n - 1).clamp(min=1), share)
        out = centred * torch.rsqrt(var + self.eps).view(shape)
        if self.affine:
            out = out * self.weight.view(shape) + self.bias.view(shape)
        return out.to(input.dtype)


def _sum(x: Tensor, reduce: Callable[[Tensor], Tensor]) -> Tensor:
    return _Sum.apply(x, reduce)  # type: ignore[no-untyped-call]


class _Sum(torch.autograd.Function):
    """A sum over the replicas. Its gradient is the sum of the replicas' gradients."""

    @staticmethod
    def forward(ctx, x: Tensor, reduce: Callable[[Tensor], Tensor]) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.reduce = reduce
        return reduce(x.clone())

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        return ctx.reduce(gradient.clone()), None
