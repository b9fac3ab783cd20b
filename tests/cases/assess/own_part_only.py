"""Nothing is reduced: rank 0 prints the accuracy on its own part of the test set."""

FAILS = {"validation": "accuracy on rank 0's part alone"}
CHANGES = {
    "    dist.all_reduce(correct)\n": "",
    "correct.item() / samples": "correct.item() / len(loader.dataset)",
}
