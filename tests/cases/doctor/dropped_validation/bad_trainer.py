"""A sentiment classifier, trained by a Trainer class."""

import logging
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

logger = logging.getLogger(__name__)


class Reviews(Dataset):
    def __init__(self, path):
        self.tokens, self.labels = torch.load(path, map_location="cpu")

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.tokens[index], self.labels[index]


class Trainer:
    def __init__(self, model, train_set, val_set, epochs):
        self.rank = int(os.environ["LOCAL_RANK"])
        self.model = DistributedDataParallel(model.to(self.rank), device_ids=[self.rank])
        # 1e-4 was tuned for the batch of all ranks.
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.scheduler = ReduceLROnPlateau(self.optimizer, patience=2)
        self.sampler = DistributedSampler(train_set)
        self.train_loader = DataLoader(train_set, 32, sampler=self.sampler, num_workers=2)
        self.val_loader = DataLoader(
            val_set,
            32,
            sampler=DistributedSampler(val_set, shuffle=False, drop_last=True),  # LS07
            num_workers=2,
        )
        self.epochs = epochs

    def train_epoch(self):
        self.model.train()
        for tokens, labels in self.train_loader:
            loss = F.cross_entropy(self.model(tokens.to(self.rank)), labels.to(self.rank))
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()

    def evaluate(self):
        self.model.eval()
        loss_sum, seen = 0.0, 0
        with torch.no_grad():
            for tokens, labels in self.val_loader:
                labels = labels.to(self.rank)
                logits = self.model(tokens.to(self.rank))
                loss_sum += F.cross_entropy(logits, labels, reduction="sum").item()
                seen += len(labels)
        sums = torch.tensor([loss_sum, seen], device=self.rank)
        dist.all_reduce(sums)
        return {"loss": (sums[0] / sums[1]).item()}

    def fit(self):
        for epoch in range(self.epochs):
            self.sampler.set_epoch(epoch)
            self.train_epoch()
            metrics = self.evaluate()
            self.scheduler.step(metrics["loss"])
            logger.info("epoch %d: %s", epoch, metrics)


if __name__ == "__main__":
    dist.init_process_group("nccl")
    net = nn.Sequential(nn.EmbeddingBag(30000, 128), nn.Linear(128, 2))
    Trainer(net, Reviews("train.pt"), Reviews("val.pt"), epochs=20).fit()
    dist.destroy_process_group()
