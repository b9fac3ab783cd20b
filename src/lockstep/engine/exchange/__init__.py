"""How replicas exchange gradients: DDP's all-reduce, a fixed tree, shared memory, compression."""
