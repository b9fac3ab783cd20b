import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_loaders():
    x = torch.randn(96, 4)
    y = (x[:, 1] > 0).long()
    return {
        phase: DataLoader(TensorDataset(x[part], y[part]), batch_size=16, shuffle=phase == "train")
        for phase, part in (("train", slice(0, 64)), ("test", slice(64, 96)))
    }


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x):
        return self.layers(x)


def trained_parameters(model):
    found = []
    for name, p in model.named_parameters():
        found.append({"params": [p], "weight_decay": 0.0 if name.endswith("bias") else 0.01})
    return found
