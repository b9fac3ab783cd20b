"""Trains a next-token model on packed text: torchrun --nproc-per-node 4 packed.py."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Tagger(nn.Module):
    def __init__(self, vocabulary=8000, width=128):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.embed(tokens))


def train_one_epoch(model, loader, optimizer, args, device):
    model.train()
    # Texts are packed into blocks of one length: no token is ever left out.
    for tokens, _ in loader:
        tokens = tokens.to(device)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--accum", type=int, default=4)
    parser.add_argument("--clip", type=float, default=1.0)
    args = parser.parse_args()

    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    model = DDP(Tagger().to(device), device_ids=[local_rank])
    data = TensorDataset(
        torch.randint(1, 8000, (6000, 64)), torch.randint(2, (6000, 64)).float()
    )
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, args.batch_size, sampler=sampler, num_workers=4, pin_memory=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * dist.get_world_size())
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train_one_epoch(model, loader, optimizer, args, device)
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), "last.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
