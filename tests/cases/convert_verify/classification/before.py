import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(1)
x = torch.randn(230, 10)
data = TensorDataset(x, (x[:, 0] > x[:, 1]).long())
train_data, test_data = random_split(data, [150, 80])
train_loader = DataLoader(train_data, batch_size=16, shuffle=True)
test_loader = DataLoader(test_data, batch_size=16)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()

for epoch in range(4):
    start = time.time()
    model.train()
    for inputs, targets in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {time.time() - start:.3f} seconds, last loss {loss.item():.4f}")
    model.eval()
    correct, total = 0, 0
    with torch.no_grad():
        for inputs, targets in test_loader:
            correct += (model(inputs).argmax(1) == targets).sum().item()
            total += len(targets)
    print(f"accuracy {correct}/{total} = {correct / total:.4f}")
