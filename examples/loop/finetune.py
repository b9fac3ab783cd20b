"""Fine-tuning: frozen layers, two parameter groups, a schedule, and a moving average.

python examples/loop/finetune.py
lockstep train examples/loop/finetune.py --replicas 2 --out runs/finetune
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import lockstep

EPOCHS = 3


class Net(nn.Module):
    """A body that was trained before, and a new head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU())
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 9, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return one score per class."""
        return self.head(self.body(self.stem(images)))

    def train(self, mode: bool = True) -> "Net":
        """Keep the frozen stem in evaluation mode, also its batch norm."""
        super().train(mode)
        self.stem.eval()
        return self


def main() -> None:
    """Train body and head with different rates; evaluate the model and its average."""
    digits = lockstep.data.digits()
    train = [(x.float() / 16, y) for x, y in digits.train][:300]
    test = [(x.float() / 16, y) for x, y in digits.test][:100]
    with lockstep.Loop(global_batch=32, exact=True) as loop:
        model = loop.model(Net())
        # A real program loads weights here: model.load_state_dict(torch.load("pretrained.pt")).
        model.stem.requires_grad_(False)
        model.train()
        groups = [
            {"params": model.body.parameters(), "lr": 0.01},
            {"params": model.head.parameters(), "lr": 0.1, "weight_decay": 1e-3},
        ]
        optimizer = loop.optimizer(torch.optim.SGD(groups, momentum=0.9), clip=5.0)
        batches = loop.batches(train)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=[0.01, 0.1], total_steps=EPOCHS * len(batches)
        )
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        average = loop.model(average, "average")
        loop.keep(scheduler=scheduler)

        def loss(batch):
            images, labels = batch
            return F.cross_entropy(model(images), labels, reduction="sum"), len(labels)

        def measure(batch):
            images, labels = batch
            return {
                "accuracy": (model(images).argmax(1) == labels).float(),
                "average_accuracy": (average(images).argmax(1) == labels).float(),
            }

        for _ in loop.epochs(EPOCHS):
            for batch in batches:
                loop.step(batch, loss, optimizer)
                scheduler.step()
                average.update_parameters(model)
            loop.evaluate(test, measure)


if __name__ == "__main__":
    main()
