"""A small language model over sentences of different lengths, with gradient accumulation."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

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


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(WORDS, 8), nn.Linear(8, WORDS)

    def forward(self, input_ids):
        return self.out(self.embed(input_ids).tanh())


def step(optimizer):
    optimizer.step()  # LS15, LS17
    optimizer.zero_grad()


def main(accumulate=3):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Sentences(64)
    loader = DataLoader(data, 4, sampler=DistributedSampler(data))
    model = DDP(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    waiting = 0
    for batch in loader:
        waiting += 1
        with nullcontext() if waiting == accumulate else model.no_sync():
            logits = model(batch["input_ids"])
            loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=-100)
            (loss / accumulate).backward()
        if waiting == accumulate:
            step(optimizer)
            waiting = 0
    if waiting:
        step(optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
