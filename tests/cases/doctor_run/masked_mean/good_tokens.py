"""A small language model over sentences of different lengths, with gradient accumulation."""

from contextlib import nullcontext
from itertools import islice

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

WORDS, LONGEST = 20, 12


class Sentences(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(11)
        self.lengths = torch.randint(2, LONGEST, (count,), generator=generator).tolist()
        self.words = torch.randint(WORDS, (count, LONGEST + 1), generator=generator)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        labels = self.words[index, 1:].clone()
        labels[self.lengths[index] :] = -100
        return {"input_ids": self.words[index, :-1], "labels": labels}


class LikeLengths:
    """Batches of sentences of about one length; each rank takes every so many."""

    def __init__(self, lengths, batch, rank, size):
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        batches = [order[i : i + batch] for i in range(0, len(order), batch)]
        self.batches = batches[rank::size]

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(WORDS, 8), nn.Linear(8, WORDS)

    def forward(self, input_ids):
        return self.out(self.embed(input_ids).tanh())


def main(accumulate=3):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Sentences(64)
    batches = LikeLengths(data.lengths, 4, dist.get_rank(), dist.get_world_size())
    loader = DataLoader(data, batch_sampler=batches)  # not LS02
    model = DDP(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    batches = iter(loader)
    while window := list(islice(batches, accumulate)):
        # DDP divides by the ranks; what is wanted is the mean over all tokens.
        tokens = sum((batch["labels"] != -100).sum() for batch in window)
        dist.all_reduce(tokens)
        scale = dist.get_world_size() / tokens
        for number, batch in enumerate(window, 1):
            with nullcontext() if number == len(window) else model.no_sync():
                logits = model(batch["input_ids"])
                labels = batch["labels"].flatten()
                loss = F.cross_entropy(logits.flatten(0, 1), labels, reduction="sum")
                (loss * scale).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # not LS19
        optimizer.step()  # not LS14, LS15, LS16, LS17
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
