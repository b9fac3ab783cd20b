"""A data set of one's own that reads a file for each item; no workers are given."""

import os

import torch
import torch.distributed as dist
import torchaudio
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, random_split
from torch.utils.data.distributed import DistributedSampler


class Commands(Dataset):
    def __init__(self, folder):
        self.words = sorted(os.listdir(folder))
        self.files = [
            (os.path.join(folder, word, name), number)
            for number, word in enumerate(self.words)
            for name in os.listdir(os.path.join(folder, word))
        ]
        self.spectrogram = torchaudio.transforms.MelSpectrogram(16000)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path, label = self.files[index]
        return self.load(path), label

    def load(self, path):
        wave, _ = torchaudio.load(path)
        wave = nn.functional.pad(wave, (0, 16000 - wave.shape[1]))
        return self.spectrogram(wave)


class Trainer:
    def __init__(self, folder):
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        data = Commands(folder)
        fixed = torch.Generator().manual_seed(0)
        self.train_data, _ = random_split(data, [0.9, 0.1], generator=fixed)
        self.sampler = DistributedSampler(self.train_data)
        self.loader = DataLoader(self.train_data, batch_size=128, sampler=self.sampler)  # LS30
        model = nn.Sequential(nn.Flatten(), nn.LazyLinear(len(data.words))).to(self.device)
        model(torch.zeros(1, 1, 128, 81, device=self.device))
        self.model = DDP(model, device_ids=[self.device.index])
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def fit(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for waves, labels in self.loader:
                logits = self.model(waves.to(self.device))
                loss = nn.functional.cross_entropy(logits, labels.to(self.device))
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("nccl")
    Trainer("speech_commands").fit(20)
    dist.destroy_process_group()
