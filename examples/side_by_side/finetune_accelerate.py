"""Fine-tuning with Accelerate: frozen layers, parameter groups, a schedule, and a moving average.

`split_batches=True` keeps the global batch, and the number of steps of the schedule, on any number
of processes.

python examples/side_by_side/finetune_accelerate.py
torchrun --nproc-per-node 2 examples/side_by_side/finetune_accelerate.py
"""

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
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
    loading = DataLoaderConfiguration(split_batches=True)
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), dataloader_config=loading)
    set_seed(0)
    data = digits()
    order = torch.Generator().manual_seed(0)
    samples = [(x.float() / 16, y) for x, y in data.train][:300]
    train = DataLoader(samples, batch_size=32, shuffle=True, generator=order)
    test = DataLoader([(x.float() / 16, y) for x, y in data.test][:100], batch_size=32)
    model = Net()
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
    model, optimizer, train, test, scheduler = accelerator.prepare(
        model, optimizer, train, test, scheduler
    )
    plain = accelerator.unwrap_model(model)
    average = AveragedModel(plain, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    for _ in range(EPOCHS):
        model.train()
        losses = []
        for images, labels in train:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            scheduler.step()
            average.update_parameters(plain)
            losses.append(accelerator.gather(loss.detach()).mean().item())
        model.eval()
        average.eval()
        right, average_right = [], []
        with torch.no_grad():
            for images, labels in test:
                both = model(images).argmax(1) == labels, average(images).argmax(1) == labels
                both = accelerator.gather_for_metrics(both)
                right.append(both[0])
                average_right.append(both[1])
    accuracies = [torch.cat(r).float().mean().item() for r in (right, average_right)]
    loss = sum(losses) / len(losses)
    finish(loss, plain, average, accuracy=accuracies[0], average_accuracy=accuracies[1])
    accelerator.end_training()


if __name__ == "__main__":
    main()
