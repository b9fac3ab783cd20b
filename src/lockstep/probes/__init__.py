"""Start a training script unchanged, and record what its ranks do while they run."""
