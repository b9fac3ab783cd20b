"""A training loop that a user writes: batches, steps, evaluation and checkpoints of `Loop`."""
