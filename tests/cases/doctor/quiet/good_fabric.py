"""Lightning Fabric sets up the model, the optimizer and the loaders."""

from pathlib import Path

import lightning as L
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torchmetrics.classification import Accuracy
from torchvision.datasets import MNIST
from torchvision.transforms import ToTensor

BATCH_SIZE = 64
BASE_LR = 0.1
EPOCHS = 4


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(784, 128)
        self.fc2 = torch.nn.Linear(128, 10)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def run():
    fabric = L.Fabric(accelerator="auto", devices="auto", strategy="ddp", precision="bf16-mixed")
    fabric.launch()
    fabric.seed_everything(7 + fabric.global_rank)
    root = Path("data")
    with fabric.rank_zero_first(local=False):
        train_dataset = MNIST(root, download=fabric.is_global_zero, train=True, transform=ToTensor())
        test_dataset = MNIST(root, download=fabric.is_global_zero, train=False, transform=ToTensor())
    train_loader = DataLoader(train_dataset, batch_size=BATCH_SIZE, shuffle=True, num_workers=2)
    test_loader = DataLoader(test_dataset, batch_size=1000, num_workers=2)
    train_loader, test_loader = fabric.setup_dataloaders(train_loader, test_loader)

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=BASE_LR * fabric.world_size)
    model, optimizer = fabric.setup(model, optimizer)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    test_acc = Accuracy(task="multiclass", num_classes=10).to(fabric.device)

    for epoch in range(EPOCHS):
        model.train()
        for batch_idx, (data, target) in enumerate(train_loader):
            accumulating = batch_idx % 2 != 1
            with fabric.no_backward_sync(model, enabled=accumulating):
                loss = F.cross_entropy(model(data), target)
                fabric.backward(loss / 2)
            if not accumulating:
                fabric.clip_gradients(model, optimizer, max_norm=1.0)
                optimizer.step()
                optimizer.zero_grad()
            if batch_idx % 50 == 0:
                fabric.print(f"epoch {epoch} [{batch_idx}/{len(train_loader)}] {loss.item():.4f}")
        scheduler.step()

        model.eval()
        with torch.no_grad():
            for data, target in test_loader:
                test_acc(model(data), target)
        fabric.print(f"accuracy {100 * test_acc.compute():.2f}%")
        test_acc.reset()
        fabric.save("mnist.ckpt", {"model": model, "optimizer": optimizer, "epoch": epoch})


if __name__ == "__main__":
    run()
