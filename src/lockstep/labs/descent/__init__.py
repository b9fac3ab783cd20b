"""Lab 1: gradient descent, SGD and batch size."""
