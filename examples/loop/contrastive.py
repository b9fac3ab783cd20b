"""A contrastive loss over the whole global batch, as in CLIP, with a learned temperature.

On four replicas with 8 samples each, plain DDP compares every sample with 7 others. Here it is
compared with all 31, and gradients flow back to each of them.

python examples/loop/contrastive.py
lockstep train examples/loop/contrastive.py --replicas 4 --out runs/contrastive
"""

import torch
from torch import nn
from torch.nn import functional as F

import lockstep


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
    digits = lockstep.data.digits()
    train = [image.float() / 16 for image, _ in digits.train][:300]
    test = [image.float() / 16 for image, _ in digits.test][:100]
    with lockstep.Loop(global_batch=32, exact=True) as loop:
        model = loop.model(TwoTowers())
        optimizer = loop.optimizer(torch.optim.AdamW(model.parameters(), lr=3e-3))
        batches = loop.batches(train)

        def loss(embeddings):
            upper, lower = embeddings
            scores = model.log_scale.exp() * upper @ lower.T
            own = torch.arange(len(scores), device=scores.device)
            both = F.cross_entropy(scores, own, reduction="sum") + F.cross_entropy(
                scores.T, own, reduction="sum"
            )
            return both / 2, len(scores)

        for epoch in loop.epochs(3):
            for batch in batches:
                loop.step_across(batch, model, loss, optimizer)
            upper, lower = loop.collect(test, model)
            found = (upper @ lower.T).argmax(1) == torch.arange(len(upper))
            loop.log(found=found.float().mean().item())
            loop.say(f"epoch {epoch}: found {found.float().mean():.2f} of the other halves")


if __name__ == "__main__":
    main()
