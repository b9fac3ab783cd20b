"""Batch norm and dropout that depend on the shard, not on the number of replicas."""

from lockstep.layers.shards import ShardBatchNorm, ShardDropout, Shards, SyncedBatchNorm, per_shard

__all__ = ["ShardBatchNorm", "ShardDropout", "Shards", "SyncedBatchNorm", "per_shard"]
