"""Batch norm and dropout that depend on the shard, not on the number of replicas."""

from lockstep.layers.batch_norm import ShardBatchNorm, SyncedBatchNorm
from lockstep.layers.dropout import ShardDropout
from lockstep.layers.per_shard import per_shard
from lockstep.layers.shards import Shards

__all__ = ["ShardBatchNorm", "ShardDropout", "Shards", "SyncedBatchNorm", "per_shard"]
