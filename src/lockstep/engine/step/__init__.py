"""One training step: forward, loss, backward, update; eager, compiled, or as a CUDA graph."""
