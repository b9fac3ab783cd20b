"""Layers whose result depends on the batch, made to depend on the shard instead."""
