import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

np.random.seed(9)
torch.manual_seed(9)

device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
ALPHA = 0.4
SMOOTHING = 0.1


def waves(n, seed):
    rng = np.random.RandomState(seed)
    y = rng.randint(0, 6, n)
    t = np.arange(40)
    x = np.cos(t * (y[:, None] + 1) / 8 + rng.rand(n, 1) * 6.28) + 1.0 * rng.randn(n, 40)
    return TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(y))


def mixup_data(x, y, alpha):
    '''Each sample is mixed with another one of its batch.'''
    lam = np.random.beta(alpha, alpha) if alpha > 0 else 1
    index = torch.randperm(x.size(0)).to(x.device)
    return lam * x + (1 - lam) * x[index], y, y[index], lam


train_loader = DataLoader(waves(960, 0), batch_size=48, shuffle=True)
test_loader = DataLoader(waves(240, 1), batch_size=48, shuffle=False)

net = nn.Sequential(nn.Unflatten(1, (1, 40)), nn.Conv1d(1, 16, 9), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(256, 6)).to(device)
criterion = nn.CrossEntropyLoss(label_smoothing=SMOOTHING)
optimizer = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9)

for epoch in range(6):
    net.train()
    total = correct = train_loss = 0
    for batch_idx, (inputs, targets) in enumerate(train_loader):
        inputs, targets = inputs.to(device), targets.to(device)
        inputs, targets_a, targets_b, lam = mixup_data(inputs, targets, ALPHA)
        outputs = net(inputs)
        loss = lam * criterion(outputs, targets_a) + (1 - lam) * criterion(outputs, targets_b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        train_loss += loss.item()
        pred = outputs.argmax(1)
        correct += (lam * (pred == targets_a).float() + (1 - lam) * (pred == targets_b).float()).sum().item()
        total += targets.size(0)
    print('epoch %d | train %.4f, %.2f%%' % (epoch, train_loss / (batch_idx + 1), 100 * correct / total), end=' | ')

    net.eval()
    hits = 0
    for inputs, targets in test_loader:
        with torch.no_grad():
            hits += (net(inputs.to(device)).argmax(1).cpu() == targets).sum().item()
    print('test {:.2f}%'.format(100 * hits / len(test_loader.dataset)))

torch.save(net.state_dict(), 'mixup.pth')
