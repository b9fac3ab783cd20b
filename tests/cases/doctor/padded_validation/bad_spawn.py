"""Retrieval of sentences: scores are gathered on all ranks and judged together."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from pairs import SentencePairs


def gather(tensor, world_size):
    parts = [torch.empty_like(tensor) for _ in range(world_size)]
    dist.all_gather(parts, tensor)
    return torch.stack(parts, dim=1).flatten()


def test(model, loader, rank, world_size):
    scores, labels = [], []
    model.eval()
    with torch.no_grad():
        for pair, label in loader:
            scores.append(torch.sigmoid(model(pair.to(rank))).squeeze(1))
            labels.append(label.to(rank))
    scores = gather(torch.cat(scores), world_size)
    labels = gather(torch.cat(labels), world_size)
    return roc_auc_score(labels.cpu(), scores.cpu())


def worker(rank, world_size, lr):
    dist.init_process_group(
        "nccl", init_method="tcp://127.0.0.1:23456", rank=rank, world_size=world_size
    )
    train_pairs, test_pairs = SentencePairs("train.tsv"), SentencePairs("test.tsv")
    train_sampler = DistributedSampler(train_pairs, world_size, rank)
    test_sampler = DistributedSampler(test_pairs, world_size, rank, shuffle=False)  # LS06
    train_loader = DataLoader(train_pairs, 128, sampler=train_sampler, num_workers=2)
    test_loader = DataLoader(test_pairs, 128, sampler=test_sampler, num_workers=2)
    model = DDP(nn.Sequential(nn.Linear(1536, 256), nn.ReLU(), nn.Linear(256, 1)).to(rank), [rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=lr * world_size)
    for epoch in range(10):
        train_sampler.set_epoch(epoch)
        model.train()
        for pair, label in train_loader:
            output = model(pair.to(rank)).squeeze(1)
            loss = F.binary_cross_entropy_with_logits(output, label.to(rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        auc = test(model, test_loader, rank, world_size)
        if rank == 0:
            print(f"epoch {epoch}: AUC {auc:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    n = torch.cuda.device_count()
    mp.spawn(worker, args=(n, 1e-4), nprocs=n)
