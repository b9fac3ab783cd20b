"""Layers whose behaviour depends on the batch, made to depend on the shard instead.

Batch norm sees "whatever this device got" and dropout draws from the device's generator, so both
change when a job moves to more replicas. `per_shard` swaps them for layers that work shard by
shard: the shard is a fixed slice of the global batch, whichever replica computes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from lockstep.errors import RecipeError
from lockstep.keys import GOLDEN, mixed, shifted, signed, signed_key


class Shards:
    """Which shards the batch that is now in the model consists of, and their randomness.

    Random numbers are a hash of (seed, step, shard, place in the shard), not the next ones of a
    generator: so they are the same whoever computes them, in whichever order, compiled or not.
    """

    def __init__(
        self,
        local: int = 1,
        device: torch.device | str = "cpu",
        *,
        first: int = 0,
        seed: int = 0,
        channels_last: bool = False,
    ) -> None:
        """A replica that owns `local` shards from number `first` on, computing on `device`.

        With `channels_last`, random masks of images lie in memory as such images do.
        """
        self.local, self.channels_last = local, channels_last
        own = [signed_key(seed, shard, "shard") for shard in range(first, first + local)]
        self.keys = torch.tensor(own, dtype=torch.int64, device=device)
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.own = self.keys
        self.rows = range(local)
        self.sizes: tuple[int, ...] = (1,) * local
        self.counts = True
        self.draws, self.rounds = 0, 1
        self._rounds: dict[tuple[int, int], Tensor] = {}
        self.random = False
        """Whether any layer draws."""

    def turn_to(self, step: int) -> None:
        """A new step begins: it draws other random numbers than the one before."""
        if self.random:
            self.step.fill_(self.step_key(step))

    @staticmethod
    def step_key(step: int) -> int:
        """What tells the random numbers of a step from those of another."""
        return signed_key(step, "step")

    def enter(
        self,
        rows: range,
        sizes: Sequence[int],
        counts: bool = True,
        round: int = 0,
        rounds: int = 1,
    ) -> None:
        """Announce a batch: the local shards in it, their sizes, and which of the step's it is.

        Several `rounds` may come at once: all of the first shard, then all of the next. With
        `counts` false the batch leaves no trace in running statistics.
        """
        self.rows, self.sizes, self.counts = rows, tuple(sizes), counts
        self.draws, self.rounds = 0, rounds
        self.own = self.keys[rows.start : rows.stop]
        if self.random and round + rounds > 1:
            self.own = (self.own[:, None] ^ self._of_rounds(round, rounds)).flatten()

    def _of_rounds(self, first: int, rounds: int) -> Tensor:
        """What tells the random numbers of these rounds apart: no number, so that nothing in a
        compiled step depends on it.
        """
        if (first, rounds) not in self._rounds:
            values = [signed(number * _ROUND) for number in range(first, first + rounds)]
            self._rounds[first, rounds] = torch.tensor(values, device=self.keys.device)
        return self._rounds[first, rounds]

    @property
    def even(self) -> bool:
        """Whether there are several shards, all of the same size."""
        return len(self.sizes) > 1 and len(set(self.sizes)) == 1

    def keep(self, shape: Sequence[int], share: float) -> Tensor:
        """True for about `share` of the places of a batch of this shape; fresh at every call."""
        self.draws += 1
        bases = self.own ^ self.step ^ signed(self.draws * _DRAW)
        total = math.prod(shape)
        if self.even or len(self.sizes) == 1:
            return _bits(bases, total // len(self.sizes), share).view(*shape)
        each = total // sum(self.sizes)
        pieces = [_bits(bases[n : n + 1], s * each, share) for n, s in enumerate(self.sizes)]
        return torch.cat(pieces, 1).view(*shape)

    def check(self, x: Tensor) -> int:
        """Rows of `x` for each sample."""
        parts, rest = divmod(len(x), sum(self.sizes))
        if rest and len(self.sizes) > 1:
            raise ValueError(
                f"a layer got {len(x)} rows for {sum(self.sizes)} samples: batch norm and dropout "
                "per shard need the samples in the first dimension"
            )
        return parts

    def cut(self, x: Tensor) -> list[tuple[int, Tensor]]:
        """(row, slice) for each shard with samples; rows of `x` may be samples or parts of them."""
        if len(self.sizes) == 1:
            return [(self.rows[0], x)]
        parts = self.check(x)
        pieces = x.split([size * parts for size in self.sizes])
        rows = [row for row in self.rows for _ in range(self.rounds)]
        return [(row, piece) for row, piece in zip(rows, pieces, strict=True) if len(piece)]


class ShardBatchNorm(_BatchNorm):
    """Batch norm over each shard by itself (ghost batch norm: Hoffer et al. 2017).

    Each shard keeps running statistics of its own, so that training needs no exchange. Their mean
    over all shards, which is the running statistic of the whole, is taken when it is needed.
    """

    shards: Shards
    shard_mean: Tensor
    shard_var: Tensor

    def _check_input_dim(self, input: Tensor) -> None:
        """Any input with channels in the second dimension will do."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise shard by shard while training, by the running statistics otherwise."""
        if not self.training:
            return super().forward(input)
        if torch.compiler.is_compiling() and self.shards.even:
            return self._normalise_together(input)
        outputs = [self._normalise(row, piece) for row, piece in self.shards.cut(input)]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _normalise(self, row: int, piece: Tensor) -> Tensor:
        # One value per channel has no variance to remember.
        remember = (
            self.track_running_stats and self.shards.counts and piece.numel() > piece.shape[1]
        )
        return torch.batch_norm(
            piece,
            self.weight,
            self.bias,
            self.shard_mean[row] if remember else None,
            self.shard_var[row] if remember else None,
            True,
            self.momentum or 0.0,
            self.eps,
            torch.backends.cudnn.enabled,
        )

    def _normalise_together(self, input: Tensor) -> Tensor:
        """All shards in one piece of arithmetic, which a compiler makes into few kernels."""
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
        """Any input with channels in the second dimension will do."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise by the mean and variance over all replicas."""
        if not self.training:
            return super().forward(input)
        axes = [axis for axis in range(input.dim()) if axis != 1]
        # At least float32: sums over a batch lose too much in half precision.
        x = input if input.dtype == torch.float64 else input.float()
        # A replica without samples of its own computes a borrowed one: it must not be counted.
        weight = 1.0 if self.shards.counts else 0.0
        count = x.new_full((1,), weight * x.numel() / x.shape[1])
        shape = [1, -1] + [1] * (input.dim() - 2)
        total: Tensor = _sum(torch.cat([x.sum(axes) * weight, count]), self.reduce)
        mean = total[:-1] / total[-1]
        centred = x - mean.view(shape)
        # Squares of the centred values: subtracting squares of means would cancel.
        var = _sum(centred.square().sum(axes) * weight, self.reduce) / total[-1]
        if self.track_running_stats and self.running_mean is not None:
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
    """A sum over the replicas, whose gradient is a sum over the replicas too."""

    @staticmethod
    def forward(ctx, x: Tensor, reduce: Callable[[Tensor], Tensor]) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.reduce = reduce
        return reduce(x.clone())

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        return ctx.reduce(gradient.clone()), None


class ShardDropout(_DropoutNd):
    """Dropout whose mask is keyed by step and shard."""

    shards: Shards
    whole_channels = False
    """Whether a channel is dropped as a whole (nn.Dropout2d and the like)."""

    def forward(self, input: Tensor) -> Tensor:
        """Zero a share `p` of the values while training, and make up for it in the others."""
        if not self.training or self.p == 0.0:
            return input
        if self.p == 1.0:
            return input * 0.0
        share = _possible(1.0 - self.p)
        self.shards.check(input)
        if self.whole_channels:
            mask = self.shards.keep(input.shape[:2], share)
            mask = mask.view(*mask.shape, *[1] * (input.dim() - 2))
        elif self.shards.channels_last and input.dim() == 4:
            batch, channels, height, width = input.shape
            mask = self.shards.keep((batch, height, width, channels), share)
            mask = mask.permute(0, 3, 1, 2)
        else:
            mask = self.shards.keep(input.shape, share)
        # A mask of one byte is all that backward keeps.
        return torch.where(mask, input * (1.0 / share), 0.0)


_DRAW = 0xD6E8FEB86659FD93
"""An odd number with no pattern: tells one draw of a step from the next."""
_ROUND = 0xA24BAED4963EE407
"""Likewise: tells one batch of a step from the next."""
_LANE = 16
"""Random bits for each place: four places share a hash of 64 bits."""
_LEVELS = 1 << _LANE


def _possible(share: float) -> float:
    """The share that random bits can give, next to the one that is wanted."""
    return min(max(round(share * _LEVELS), 1), _LEVELS - 1) / _LEVELS


def _bits(bases: Tensor, count: int, share: float) -> Tensor:
    """(bases, count) places, each True with a probability of `share`."""
    lanes = 64 // _LANE
    number = torch.arange(1, -(-count // lanes) + 1, device=bases.device)
    # In this order: a compiler would fold a product of places into addresses, which overflow.
    hashes = mixed((number[None, :] ^ bases[:, None]) * signed(GOLDEN))
    # The lower half of a product is not well mixed: fold the upper one in.
    hashes = hashes ^ shifted(hashes, 32)
    limit = round(share * _LEVELS)
    if torch.compiler.is_compiling():
        # A compiler does this without a pass through memory, and knows no other view of the bits.
        places = torch.arange(0, 64, _LANE, device=bases.device)
        cut = (hashes[:, :, None] >> places & (_LEVELS - 1)) ^ (_LEVELS // 2)
        return cut.flatten(1)[:, :count] < limit
    return hashes.view(torch.int16)[:, :count] < limit - _LEVELS // 2


_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_CHANNEL_DROPOUTS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


def per_shard(
    model: nn.Module, shards: Shards, reduce: Callable[[Tensor], Tensor] | None = None
) -> nn.Module:
    """`model` with its batch norm and dropout keyed per shard, in place; names of weights stay.

    With `reduce`, batch norm is taken over the global batch instead. Layers are recognised by
    type: functional calls (`F.dropout`) and subclasses of the user's are left alone.
    """
    return _converted(model, shards, reduce, {})


def unkeyed(model: nn.Module) -> list[str]:
    """Kinds of layers in a converted model that still draw from torch's own generator."""
    found = set()
    for module in model.modules():
        inner = isinstance(module, nn.MultiheadAttention | nn.RNNBase) and module.dropout > 0
        if inner or isinstance(module, _DropoutNd | nn.RReLU):
            found.add(type(module).__name__)
    return sorted(found - {"ShardDropout"})


def _converted(
    module: nn.Module,
    shards: Shards,
    reduce: Callable[[Tensor], Tensor] | None,
    done: dict[nn.Module, nn.Module],
) -> nn.Module:
    """The module, or what takes its place; one that is used twice is converted once."""
    if module in done:
        return done[module]
    new = module
    if type(module) in _NORMS:
        assert isinstance(module, _BatchNorm)
        new = _converted_norm(module, shards, reduce)
    elif type(module) is nn.Dropout or type(module) in _CHANNEL_DROPOUTS:
        assert isinstance(module, _DropoutNd)
        layer = ShardDropout(module.p)
        layer.shards = shards
        shards.random = True
        layer.whole_channels = type(module) in _CHANNEL_DROPOUTS
        new = layer.train(module.training)
    done[module] = new
    for name, child in module._modules.items():
        if child is not None:
            setattr(module, name, _converted(child, shards, reduce, done))
    return new


def _converted_norm(
    old: _BatchNorm, shards: Shards, reduce: Callable[[Tensor], Tensor] | None
) -> _BatchNorm:
    if old.momentum is None:
        raise RecipeError(
            "a batch norm has momentum=None (average over all batches so far), which depends on "
            "where a run was resumed. Give it a number, such as momentum=0.1."
        )
    new: ShardBatchNorm | SyncedBatchNorm
    new = (ShardBatchNorm if reduce is None else SyncedBatchNorm)(
        old.num_features, old.eps, old.momentum, old.affine, old.track_running_stats
    )
    new.shards = shards
    # The very tensors, not copies: an optimizer may hold them already.
    new._parameters, new._buffers = old._parameters, old._buffers
    if isinstance(new, SyncedBatchNorm):
        assert reduce is not None
        new.reduce = reduce
    elif old.running_mean is not None and old.running_var is not None:
        for name, value in (("shard_mean", old.running_mean), ("shard_var", old.running_var)):
            rows = value.detach().expand(shards.local, -1).clone()
            new.register_buffer(name, rows, persistent=False)
    return new.train(old.training)
