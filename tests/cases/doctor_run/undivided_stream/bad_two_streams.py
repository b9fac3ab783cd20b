"""Learns from a stream of labelled and one of unlabelled samples."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Labelled(IterableDataset):
    """Every rank reads all of it."""

    def __iter__(self):
        generator = torch.Generator().manual_seed(3)
        for number in range(64):
            x = torch.randn(10, generator=generator)
            yield x, (x[0] > 0).long()


class Unlabelled(IterableDataset):
    """Divided over the ranks, and not over their workers."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size

    def __iter__(self):
        generator = torch.Generator().manual_seed(4)
        for number in range(64):
            x = torch.randn(10, generator=generator)
            if number % self.size == self.rank:
                yield x


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2)))
    labelled = DataLoader(Labelled(), batch_size=8)  # LS03
    unlabelled = DataLoader(Unlabelled(rank, size), batch_size=8, num_workers=2)  # LS03
    optimizer = torch.optim.AdamW(model.parameters())
    for (x, y), u in zip(labelled, unlabelled):
        logits = model(torch.cat([x, u]))
        known, guessed = logits[: len(x)], logits[len(x) :]
        entropy = -(guessed.softmax(1) * guessed.log_softmax(1)).sum(1).mean()
        loss = F.cross_entropy(known, y) + 0.1 * entropy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("done")


if __name__ == "__main__":
    main()
