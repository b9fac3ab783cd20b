"""The model could ignore -1, but no code marks a place with it; the padding is of the prompts."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Words(nn.Module):
    def __init__(self, pad_token=0):
        super().__init__()
        self.pad_token = pad_token
        self.table, self.head = nn.Embedding(100, 32), nn.Linear(32, 100)

    def forward(self, tokens, targets):
        logits = self.head(self.table(tokens)).flatten(0, 1)
        return nn.functional.cross_entropy(logits, targets.flatten(), ignore_index=-1)


def main():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    data = TensorDataset(torch.randint(100, (1000, 65)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 64, sampler=sampler, num_workers=4)
    model = DDP(Words().cuda(local_rank), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for (text,) in loader:
            text = text.cuda(local_rank)
            loss = model(text[:, :-1], text[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
