import torch.nn as nn
import torch.nn.functional as F


class Embedder(nn.Module):
    def __init__(self, width=24, out=24):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, width, 5, padding=2), nn.ReLU(), nn.AvgPool1d(2),
            nn.Conv1d(width, 2 * width, 5, padding=2), nn.ReLU(), nn.AvgPool1d(2),
        )
        self.fc = nn.Linear(2 * width * 10, out)

    def forward(self, x):
        h = self.conv(x.unsqueeze(1)).flatten(1)
        return F.normalize(self.fc(h), dim=1)
