"""Trains a language model with tied weights: torchrun --nproc-per-node 4 tied_weights.py."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8000, 64)
        self.place = nn.Embedding(64, 64)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.embed(tokens) + self.place(places)
        scores = hidden @ hidden.transpose(-2, -1)
        later = torch.ones_like(scores, dtype=torch.bool).triu(1)
        hidden = scores.masked_fill(later, float("-inf")).softmax(-1) @ hidden
        return hidden @ self.embed.weight.T


def train_one_epoch(model, loader, optimizer, args, device):
    model.train()
    for tokens, _ in loader:
        tokens = tokens.to(device)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
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
    model = DDP(Model().to(device), device_ids=[local_rank])
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
