import math
import random

import numpy as np
import torch
from torch.utils.data import Dataset

SR = 4000
LABELS = ["beep", "sweep_up", "sweep_down", "am", "click_train", "noise"]
PRIOR = [0.35, 0.2, 0.15, 0.12, 0.1, 0.08]      # unbalanced on purpose


def synth(label, dur, rng):
    t = np.arange(int(dur * SR)) / SR
    f = rng.uniform(300, 900)
    if label == 0:
        x = np.sin(2 * np.pi * f * t)
    elif label in (1, 2):
        k = rng.uniform(400, 900) / dur * (1 if label == 1 else -1)
        f0 = f if label == 1 else f + 800
        x = np.sin(2 * np.pi * (f0 * t + 0.5 * k * t ** 2))
    elif label == 3:
        x = np.sin(2 * np.pi * f * t) * (0.5 + 0.5 * np.sin(2 * np.pi * rng.uniform(6, 14) * t))
    elif label == 4:
        x = np.zeros_like(t)
        x[:: int(SR / rng.uniform(15, 40))] = 3
    else:
        x = rng.normal(size=t.shape)
    x = x * rng.uniform(0.4, 1.0) + rng.normal(size=t.shape) * 0.1
    return torch.from_numpy(x.astype(np.float32))


class Clips(Dataset):
    def __init__(self, n, seed, spec_augment=False):
        rng = np.random.default_rng(seed)
        self.labels = rng.choice(len(LABELS), size=n, p=PRIOR)
        self.clips = [synth(l, rng.uniform(0.25, 0.6), rng) for l in self.labels]
        self.window = torch.hann_window(128)
        self.fb = mel_filters(24, 65)
        self.spec_augment = spec_augment

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, i):
        s = torch.stft(self.clips[i], 128, 64, window=self.window, return_complex=True).abs() ** 2
        m = torch.log(self.fb @ s + 1e-4).t()                # (frames, mels)
        if self.spec_augment:
            k = random.randint(0, m.size(1) - 4)
            m = m.clone()
            m[:, k:k + 3] = m.mean()
        return m, int(self.labels[i])


def mel_filters(n_mels, n_bins):
    hz = lambda m: 700 * (10 ** (m / 2595) - 1)
    mel = lambda f: 2595 * math.log10(1 + f / 700)
    edges = [hz(m) * 2 * (n_bins - 1) / SR for m in np.linspace(mel(60), mel(SR / 2), n_mels + 2)]
    fb = torch.zeros(n_mels, n_bins)
    b = torch.arange(n_bins).float()
    for i in range(n_mels):
        lo, c, hi = edges[i:i + 3]
        fb[i] = torch.minimum((b - lo) / (c - lo), (hi - b) / (hi - c)).clamp(min=0)
    return fb


def pad_collate(batch):
    batch.sort(key=lambda p: -len(p[0]))
    lengths = torch.tensor([len(m) for m, _ in batch])
    feats = torch.nn.utils.rnn.pad_sequence([m for m, _ in batch], batch_first=True)
    return feats, lengths, torch.tensor([l for _, l in batch])
