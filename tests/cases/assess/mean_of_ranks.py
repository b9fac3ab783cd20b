"""The mean of the ranks' accuracies, though their parts of the test set differ in size."""

FAILS = {"validation": "mean of the ranks' accuracies"}
CHANGES = {
    "dist.all_reduce(correct)\n": (
        "correct = correct / len(loader.dataset)\n    dist.all_reduce(correct)\n"
    ),
    "correct.item() / samples": "correct.item() / dist.get_world_size()",
}
