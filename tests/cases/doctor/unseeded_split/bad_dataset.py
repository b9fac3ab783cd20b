"""Speech commands; the data set shuffles its own files."""

import os
import random
from pathlib import Path

import torch
import torch.distributed as dist
import torchaudio
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Commands(Dataset):
    def __init__(self, root, part):
        self.files = sorted(Path(root).glob("*/*.wav"))
        random.shuffle(self.files)  # LS04
        cut = len(self.files) // 10
        self.files = self.files[cut:] if part == "train" else self.files[:cut]
        self.labels = sorted({path.parent.name for path in self.files})

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        wave, _ = torchaudio.load(self.files[index])
        # A random second of it.
        start = random.randint(0, max(0, wave.size(1) - 16000))
        piece = nn.functional.pad(wave[:, start : start + 16000], (0, 16000))[:, :16000]
        return piece, self.labels.index(self.files[index].parent.name)


class Trainer:
    def __init__(self, train_data, local_rank):
        self.sampler = DistributedSampler(train_data)
        self.loader = DataLoader(train_data, 64, sampler=self.sampler, num_workers=6)
        net = nn.Sequential(nn.Conv1d(1, 64, 400, 160), nn.ReLU(), nn.Flatten(), nn.LazyLinear(35))
        net(torch.zeros(1, 1, 16000))
        self.model = DistributedDataParallel(net.to(local_rank), device_ids=[local_rank])
        lr = 1e-3 * dist.get_world_size() ** 0.5
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.device = local_rank

    def run(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for wave, label in self.loader:
                output = self.model(wave.to(self.device))
                loss = nn.functional.cross_entropy(output, label.to(self.device))
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
        if dist.get_rank() == 0:
            torch.save(self.model.module.state_dict(), "commands.pt")


if __name__ == "__main__":
    dist.init_process_group("nccl")
    trainer = Trainer(Commands("speech", "train"), int(os.environ["LOCAL_RANK"]))
    trainer.run(epochs=20)
