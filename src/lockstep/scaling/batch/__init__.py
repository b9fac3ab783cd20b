"""Batch size: the critical batch, batches that grow, and advice."""
