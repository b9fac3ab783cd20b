"""The mean over batches, though the last one is smaller."""

FAILS = {"validation": "mean over batches"}
CHANGES = {
    "torch.zeros((), dtype=torch.int64, device=device)": "torch.zeros((), device=device)",
    "labels.to(device)).sum()": "labels.to(device)).float().mean()",
    "dist.all_reduce(correct)\n": "correct /= len(loader)\n    dist.all_reduce(correct)\n",
    "correct.item() / samples": "correct.item() / dist.get_world_size()",
}
