"""Replace the layers of a model whose behaviour depends on the batch by layers that work per shard.

Plain batch norm normalises whatever its device got, and plain dropout draws from the device's
generator, so both change when a job moves to more replicas.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from lockstep.errors import RecipeError
from lockstep.layers.batch_norm import ShardBatchNorm, SyncedBatchNorm
from lockstep.layers.dropout import ShardDropout
from lockstep.layers.recompute import follow
from lockstep.layers.shards import Shards

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_CHANNEL_DROPOUTS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


def per_shard(
    model: nn.Module, shards: Shards, reduce: Callable[[Tensor], Tensor] | None = None
) -> nn.Module:
    """Make batch norm and dropout of `model` work per shard, in place; weights keep their names.

    With `reduce`, batch norm works on the global batch instead. Layers are recognised by type:
    functional calls (`F.dropout`) and subclasses that users wrote are left alone.
    """
    follow(shards)
    return _converted(model, shards, reduce, {})


def unkeyed(model: nn.Module) -> list[str]:
    """Return the kinds of layers in a converted model that draw from torch's own generator."""
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
    """Return the module or its replacement; convert a module that is used twice only once."""
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
