import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Forecaster(nn.Module):
    """keeps loss and metrics beside the network"""

    def __init__(self, features, horizon):
        super().__init__()
        self.rnn = nn.GRU(features, 128, batch_first=True)
        self.head = nn.Linear(128, horizon)

    def forward(self, window):
        _, h = self.rnn(window)
        return self.head(h[-1])

    def training_step(self, batch):
        window, future = batch
        return nn.functional.l1_loss(self.forward(window), future)


class Trainer:
    def __init__(self, rank, world_size, settings):
        self.rank, self.settings = rank, settings
        blob = torch.load(settings["file"], map_location="cpu")
        ds = TensorDataset(blob["window"], blob["future"])
        self.sampler = DistributedSampler(ds, world_size, rank)
        self.loader = DataLoader(ds, settings["batch"], sampler=self.sampler)
        net = Forecaster(blob["window"].shape[-1], blob["future"].shape[-1]).to(rank)
        self.model = DistributedDataParallel(net, device_ids=[rank])
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=settings["lr"])

    def fit(self):
        for epoch in range(self.settings["epochs"]):
            self.sampler.set_epoch(epoch)
            for batch in self.loader:
                batch = [t.to(self.rank) for t in batch]
                loss = self.model.module.training_step(batch)  # LS10
                self.optim.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
                self.optim.step()
            if self.rank == 0:
                torch.save(self.model.module.state_dict(), self.settings["out"])


def main_worker(rank, world_size, settings):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    Trainer(rank, world_size, settings).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "16161")
    gpus = torch.cuda.device_count()
    mp.spawn(main_worker, (gpus, dict(file="load.pt", batch=256, lr=1e-3, epochs=20, out="load_net.pt")), gpus)
