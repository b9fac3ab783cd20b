# refused: batch_loss
"""Images and captions, with soft targets."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Pair(nn.Module):
    def __init__(self, temperature=1.0):
        super().__init__()
        self.image, self.text = nn.Linear(2048, 256), nn.Linear(768, 256)
        self.temperature = temperature

    def forward(self, batch):
        images, texts = self.image(batch[0]), self.text(batch[1])
        logits = texts @ images.T / self.temperature
        targets = F.softmax((images @ images.T + texts @ texts.T) / 2, dim=-1)
        first = (-targets * F.log_softmax(logits, dim=-1)).sum(1)
        second = (-targets.T * F.log_softmax(logits.T, dim=-1)).sum(1)
        return ((first + second) / 2).mean()


def train_epoch(model, loader, optimizer):
    for batch in loader:
        loss = model([part.cuda() for part in batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    model = Pair().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(8000, 2048), torch.randn(8000, 768))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    for epoch in range(4):
        train_epoch(model, loader, optimizer)


if __name__ == "__main__":
    main()
