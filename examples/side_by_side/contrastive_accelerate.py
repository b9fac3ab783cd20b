"""A contrastive loss over the batch, as in CLIP, with a learned temperature, with Accelerate.

`split_batches=True` keeps the global batch on any number of processes.

python examples/side_by_side/contrastive_accelerate.py
torchrun --nproc-per-node 2 examples/side_by_side/contrastive_accelerate.py
"""

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
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

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return an embedding of length 1 for each half, and the scale of their scores."""
        upper, lower = images.flatten(1).split(32, 1)
        upper, lower = self.upper(upper), self.lower(lower)
        return F.normalize(upper, dim=1), F.normalize(lower, dim=1), self.log_scale.exp()


def main() -> None:
    """Train for three epochs, then find the lower half of each upper one."""
    loading = DataLoaderConfiguration(split_batches=True)
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), dataloader_config=loading)
    set_seed(0)
    data = digits()
    order = torch.Generator().manual_seed(0)
    images = [image.float() / 16 for image, _ in data.train][:300]
    train = DataLoader(images, batch_size=32, shuffle=True, generator=order)
    test = DataLoader([image.float() / 16 for image, _ in data.test][:100], batch_size=32)
    model = TwoTowers()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)
    for _ in range(3):
        model.train()
        losses = []
        for images in train:
            upper, lower, scale = model(images)
            scores = scale * upper @ lower.T
            own = torch.arange(len(scores), device=accelerator.device)
            loss = (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            losses.append(accelerator.gather(loss.detach()).mean().item())
        model.eval()
        with torch.no_grad():
            embeddings = [accelerator.gather_for_metrics(model(images)[:2]) for images in test]
        upper, lower = (torch.cat(parts) for parts in zip(*embeddings, strict=True))
        found = (upper @ lower.T).argmax(1) == torch.arange(len(upper), device=upper.device)
    model = accelerator.unwrap_model(model)
    finish(sum(losses) / len(losses), model, found=found.float().mean().item())
    accelerator.end_training()


if __name__ == "__main__":
    main()
