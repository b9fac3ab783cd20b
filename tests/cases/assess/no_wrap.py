"""The model is not wrapped: each replica learns from its own samples alone."""

FAILS = {
    "replicas": "diverge in step 1",
    "gradient": "do not learn from each other's samples",
    "validation": "the replicas have diverged",
}
CHANGES = {
    "DistributedDataParallel(\n        build_model().to(device), "
    "device_ids=[device] if on_gpu else None\n    )": "build_model().to(device)",
    "validate(model.module,": "validate(model,",
    "model.module.state_dict()": "model.state_dict()",
}
