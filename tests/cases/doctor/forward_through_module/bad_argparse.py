"""Language model, started by torchrun: the loop asks for outputs of the inner model."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class TinyLM(nn.Module):
    def __init__(self, vocab=256, width=128):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))
        return self.head(hidden)


def train_epoch(model, loader, optimizer, device):
    model.train()
    for (tokens,) in loader:
        tokens = tokens.to(device, non_blocking=True)
        logits = model.module(tokens[:, :-1])  # LS10
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-4)
    args = parser.parse_args()

    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    model = TinyLM().cuda()
    model = DistributedDataParallel(model, device_ids=[local_rank])
    data = TensorDataset(torch.randint(256, (4096, 65)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler, num_workers=2)
    lr = args.lr * dist.get_world_size() ** 0.5
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train_epoch(model, loader, optimizer, local_rank)
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), f"lm-{epoch}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
