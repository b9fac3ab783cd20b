"""Segmentation: a model with a dict as output, and a loss of two terms, with Accelerate.

`split_batches=True` keeps the global batch on any number of processes.

python examples/side_by_side/segmentation_accelerate.py
torchrun --nproc-per-node 2 examples/side_by_side/segmentation_accelerate.py
"""

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from ending import finish
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from lockstep.data import digits


class Scenes(torch.utils.data.Dataset):
    """Digits as figures on a noisy ground, flipped at random."""

    def __init__(self, images: torch.Tensor) -> None:
        self.images = images

    def __len__(self) -> int:
        """Return the number of scenes."""
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return a noisy image and the mask of its figure."""
        figure = self.images[index].float() / 16
        if torch.rand(()) < 0.5:
            figure = figure.flip(-1)
        noisy = figure + 0.2 * torch.randn(figure.shape)
        return {"images": noisy, "masks": (figure > 0.3).float()}


class Net(nn.Module):
    """Scores for each pixel, and whether it is on the border of the figure."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Dropout2d(0.1)
        )
        self.mask, self.border = nn.Conv2d(16, 1, 3, padding=1), nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return scores of shape (batch, 1, height, width)."""
        features = self.body(images)
        return {"mask": self.mask(features), "border": self.border(features)}


def border(masks: torch.Tensor) -> torch.Tensor:
    """Return the pixels that touch the other side."""
    return F.max_pool2d(masks, 3, 1, 1) + F.max_pool2d(-masks, 3, 1, 1)


def main() -> None:
    """Train for two epochs and measure the overlap."""
    loading = DataLoaderConfiguration(split_batches=True)
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), dataloader_config=loading)
    set_seed(0)
    data = digits()
    order = torch.Generator().manual_seed(0)
    train = DataLoader(
        Scenes(data.train.inputs[:300]), batch_size=32, shuffle=True, generator=order
    )
    test = DataLoader(Scenes(data.test.inputs[:100]), batch_size=32)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)
    for _ in range(2):
        model.train()
        losses = []
        for batch in train:
            masks = batch["masks"]
            scores = model(batch["images"])
            wrong = F.binary_cross_entropy_with_logits(scores["mask"], masks)
            edges = F.binary_cross_entropy_with_logits(scores["border"], border(masks))
            loss = wrong + 0.5 * edges
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            losses.append(accelerator.gather(loss.detach()).mean().item())
        model.eval()
        overlaps = []
        with torch.no_grad():
            for batch in test:
                found, truth = model(batch["images"])["mask"] > 0, batch["masks"] > 0
                both, either = (found & truth).sum((1, 2, 3)), (found | truth).sum((1, 2, 3))
                overlaps.append(accelerator.gather_for_metrics(both / either.clamp(min=1)))
    model = accelerator.unwrap_model(model)
    finish(sum(losses) / len(losses), model, overlap=torch.cat(overlaps).mean().item())
    accelerator.end_training()


if __name__ == "__main__":
    main()
