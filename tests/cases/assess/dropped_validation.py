"""The last batch of the test set is dropped."""

FAILS = {"validation": "samples out"}
CHANGES = {
    "range(rank, len(test), world)), BATCH)": "range(rank, len(test), world)), 16, drop_last=True)",
    "test_loader, len(test), device": "test_loader, world * 16 * len(test_loader), device",
}
