"""Batch norm and dropout that work on fixed shards of the global batch."""
