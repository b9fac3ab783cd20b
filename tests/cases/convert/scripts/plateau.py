# uneven: 150 validation and 150 test samples, in batches of 32
import os
import numpy as np
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import Dataset, DataLoader

SEED = 2024
BATCH_SIZE = 32
EPOCHS = 12
CKPT = os.path.join('ckpt', 'best.pth')


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
        torch.backends.cudnn.deterministic = True


class ToneDataset(Dataset):
    """Noisy tones; which of four pitches is it?"""

    def __init__(self, n, seed):
        rng = np.random.RandomState(seed)
        self.y = rng.randint(0, 4, size=n)
        t = np.linspace(0, 1, 64)
        phase = rng.rand(n, 1) * 2 * np.pi
        self.x = np.sin(2 * np.pi * (self.y[:, None] * 2 + 3) * t + phase) + rng.randn(n, 64) * 1.0

    def __len__(self):
        return self.y.shape[0]

    def __getitem__(self, idx):
        return torch.as_tensor(self.x[idx], dtype=torch.float32), int(self.y[idx])


class ToneNet(nn.Module):
    def __init__(self):
        super(ToneNet, self).__init__()
        self.conv = nn.Conv1d(1, 12, 9, padding=4)
        self.conv2 = nn.Conv1d(12, 12, 9, padding=4)
        self.fc = nn.Linear(12 * 16, 4)

    def forward(self, x):
        x = F.max_pool1d(F.relu(self.conv(x.unsqueeze(1))), 2)
        x = F.max_pool1d(F.relu(self.conv2(x)), 2)
        return self.fc(x.flatten(1))


def run_eval(model, loader, criterion, device):
    model.eval()
    losses, correct = [], 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        with torch.no_grad():
            out = model(x)
        losses.append(criterion(out, y).item())
        correct += (out.argmax(dim=1) == y).sum().item()
    return np.mean(losses), correct / len(loader.dataset)


def main():
    seed_everything(SEED)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    os.makedirs(os.path.dirname(CKPT), exist_ok=True)

    train_loader = DataLoader(ToneDataset(640, 0), BATCH_SIZE, shuffle=True, drop_last=True)
    val_loader = DataLoader(ToneDataset(150, 1), BATCH_SIZE, shuffle=False)
    test_loader = DataLoader(ToneDataset(150, 2), BATCH_SIZE, shuffle=False)

    model = ToneNet().to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.004)
    scheduler = ReduceLROnPlateau(optimizer, mode='min', factor=0.3, patience=1)

    best_loss = np.inf
    for epoch in range(1, EPOCHS + 1):
        model.train()
        train_losses = []
        for x, y in train_loader:
            x = x.to(device)
            y = y.to(device)
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            train_losses.append(loss.item())

        val_loss, val_acc = run_eval(model, val_loader, criterion, device)
        scheduler.step(val_loss)
        print('%2d/%d  train %.4f  val %.4f  acc %.3f  lr %.5f' % (
            epoch, EPOCHS, np.mean(train_losses), val_loss, val_acc, optimizer.param_groups[0]['lr']))

        if val_loss < best_loss:
            print('      better than %.4f, saved' % best_loss)
            best_loss = val_loss
            torch.save({'epoch': epoch, 'state_dict': model.state_dict(), 'best_loss': best_loss}, CKPT)

    # the best one, once on the test set
    ckpt = torch.load(CKPT, weights_only=False)
    model.load_state_dict(ckpt['state_dict'])
    test_loss, test_acc = run_eval(model, test_loader, criterion, device)
    print('test (weights of epoch %d): loss %.4f, acc %.3f' % (ckpt['epoch'], test_loss, test_acc))


if __name__ == '__main__':
    main()
