"""Segmentation: a model with a dict as output, and a loss of two terms.

python examples/loop/segmentation.py
lockstep train examples/loop/segmentation.py --replicas 2 --out runs/segmentation
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

import lockstep


@dataclass
class Scene:
    """Images with a mask of the figure in each."""

    images: torch.Tensor
    masks: torch.Tensor


class Scenes(torch.utils.data.Dataset):
    """Digits as figures on a noisy ground, flipped at random."""

    def __init__(self, images: torch.Tensor) -> None:
        self.images = images

    def __len__(self) -> int:
        """Return the number of scenes."""
        return len(self.images)

    def __getitem__(self, index: int) -> Scene:
        """Return one scene; its noise depends on the epoch and the index alone."""
        figure = self.images[index].float() / 16
        if torch.rand(()) < 0.5:
            figure = figure.flip(-1)
        noisy = figure + 0.2 * torch.randn(figure.shape)
        return Scene(noisy, (figure > 0.3).float())


def collate(scenes: list[Scene]) -> Scene:
    """Stack scenes into one."""
    return Scene(torch.stack([s.images for s in scenes]), torch.stack([s.masks for s in scenes]))


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
    digits = lockstep.data.digits()
    train, test = Scenes(digits.train.inputs[:300]), Scenes(digits.test.inputs[:100])
    with lockstep.Loop(global_batch=32, exact=True) as loop:
        model = loop.model(Net())
        optimizer = loop.optimizer(torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9))
        batches = loop.batches(train, collate=collate)

        def loss(scene: Scene):
            scores = model(scene.images)
            wrong = F.binary_cross_entropy_with_logits(
                scores["mask"], scene.masks, reduction="none"
            )
            edges = F.binary_cross_entropy_with_logits(
                scores["border"], border(scene.masks), reduction="none"
            )
            # Both terms are means over the pixels of an image, summed over the images.
            terms = wrong.mean((1, 2, 3)), edges.mean((1, 2, 3))
            logged = {"mask_loss": terms[0].sum(), "border_loss": terms[1].sum()}
            return (terms[0] + 0.5 * terms[1]).sum(), len(scene.images), logged

        def measure(scene: Scene):
            found, truth = model(scene.images)["mask"] > 0, scene.masks > 0
            both, either = (found & truth).sum((1, 2, 3)), (found | truth).sum((1, 2, 3))
            return {"overlap": both / either.clamp(min=1)}

        for _ in loop.epochs(2):
            for batch in batches:
                loop.step(batch, loss, optimizer)
            loop.evaluate(test, measure, collate=collate)


if __name__ == "__main__":
    main()
