"""Optimizers for large batches, one per file."""
