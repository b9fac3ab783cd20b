"""The model inside the wrapper is called: the wrapper never hears of it."""

FAILS = {
    "replicas": "diverge in step 1",
    "gradient": "do not learn from each other's samples",
    "validation": "the replicas have diverged",
}
CHANGES = {"train_epoch(model, train_loader": "train_epoch(model.module, train_loader"}
