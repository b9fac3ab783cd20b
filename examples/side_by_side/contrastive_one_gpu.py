"""A contrastive loss over the batch, as in CLIP, with a learned temperature, on one GPU.

python examples/side_by_side/contrastive_one_gpu.py
"""

import torch
from ending import finish
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from lockstep.data import digits


class TwoTowers(nn.Module):
    """One encoder for the upper half of a digit, one for the lower half."""

    def __init__(self) -> None:
        super().__init__()
        self.upper = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 16))
        self.lower = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 16))
        self.log_scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return an embedding of length 1 for each half."""
        upper, lower = images.flatten(1).split(32, 1)
        return F.normalize(self.upper(upper), dim=1), F.normalize(self.lower(lower), dim=1)


def main() -> None:
    """Train for three epochs, then find the lower half of each upper one."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = digits()
    order = torch.Generator().manual_seed(0)
    images = [image.float() / 16 for image, _ in data.train][:300]
    train = DataLoader(images, batch_size=32, shuffle=True, generator=order)
    test = DataLoader([image.float() / 16 for image, _ in data.test][:100], batch_size=32)
    model = TwoTowers().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(3):
        model.train()
        losses = []
        for images in train:
            upper, lower = model(images.to(device))
            scores = model.log_scale.exp() * upper @ lower.T
            own = torch.arange(len(scores), device=device)
            loss = (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            embeddings = [model(images.to(device)) for images in test]
        upper, lower = (torch.cat(parts) for parts in zip(*embeddings, strict=True))
        found = (upper @ lower.T).argmax(1) == torch.arange(len(upper), device=device)
    finish(sum(losses) / len(losses), model, found=found.float().mean().item())


if __name__ == "__main__":
    main()
