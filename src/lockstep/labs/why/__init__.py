"""Lab 0's experiments: compute, data, two ways to use several GPUs, a step in fifteen parts."""
