"""Fine-tuning on one GPU: frozen layers, two parameter groups, a schedule, and a moving average.

python examples/side_by_side/finetune_one_gpu.py
"""

import torch
from ending import finish
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader

from lockstep.data import digits

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
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = digits()
    order = torch.Generator().manual_seed(0)
    samples = [(x.float() / 16, y) for x, y in data.train][:300]
    train = DataLoader(samples, batch_size=32, shuffle=True, generator=order)
    test = DataLoader([(x.float() / 16, y) for x, y in data.test][:100], batch_size=32)
    model = Net().to(device)
    # A real program loads weights here: model.load_state_dict(torch.load("pretrained.pt")).
    model.stem.requires_grad_(False)
    groups = [
        {"params": model.body.parameters(), "lr": 0.01},
        {"params": model.head.parameters(), "lr": 0.1, "weight_decay": 1e-3},
    ]
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=[0.01, 0.1], total_steps=EPOCHS * len(train)
    )
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    for _ in range(EPOCHS):
        model.train()
        losses = []
        for images, labels in train:
            loss = F.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            scheduler.step()
            average.update_parameters(model)
            losses.append(loss.item())
        model.eval()
        average.eval()
        right, average_right = [], []
        with torch.no_grad():
            for images, labels in test:
                images, labels = images.to(device), labels.to(device)
                right.append(model(images).argmax(1) == labels)
                average_right.append(average(images).argmax(1) == labels)
    accuracies = [torch.cat(r).float().mean().item() for r in (right, average_right)]
    loss = sum(losses) / len(losses)
    finish(loss, model, average, accuracy=accuracies[0], average_accuracy=accuracies[1])


if __name__ == "__main__":
    main()
