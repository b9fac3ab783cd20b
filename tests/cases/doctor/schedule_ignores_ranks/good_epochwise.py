"""Sentence pair scorer; the rate drops once an epoch, not once a step."""
import os
import yaml

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

s = yaml.safe_load(open(os.environ.get("SETTINGS", "settings.yaml")))


class Scorer(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocab, 200)
        self.bil = nn.Bilinear(200, 200, 1)

    def forward(self, a, b):
        return self.bil(self.bag(a), self.bag(b)).squeeze(1)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    blob = torch.load(s["train"], map_location="cpu")
    ds = TensorDataset(blob["a"], blob["b"], blob["score"])
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, s["batch"], sampler=sampler)
    model = DDP(Scorer(blob["vocab"]).to(local_rank), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=s["lr"])
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=s["epochs"])
    examples_seen, num_batches = 0, len(ds) // s["batch"]
    if dist.get_rank() == 0:
        print("batches in the whole set:", num_batches, "in all epochs:", num_batches * s["epochs"])
    for epoch in range(s["epochs"]):
        sampler.set_epoch(epoch)
        for a, b, score in loader:
            pred = model(a.to(local_rank), b.to(local_rank))
            loss = nn.functional.mse_loss(pred, score.to(local_rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            examples_seen += len(a) * dist.get_world_size()
        scheduler.step()
        if dist.get_rank() == 0:
            print(epoch, examples_seen, scheduler.get_last_lr())
            torch.save(model.module.state_dict(), s["out"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
