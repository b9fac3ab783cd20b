"""The sampler of the test set repeats a sample so that the parts are equal, and it counts."""

FAILS = {"validation": "1 sample(s) twice"}
CHANGES = {
    "Subset(test, range(rank, len(test), world)), BATCH": (
        "test, BATCH, sampler=DistributedSampler(test, shuffle=False)"
    ),
    "test_loader, len(test), device": "test_loader, world * len(test_loader.sampler), device",
}
