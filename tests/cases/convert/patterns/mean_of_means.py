"""A metric that is a mean per batch, printed and given to a scheduler."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(128, 4)
y = (x.sum(1) > 0).long()
train = DataLoader(TensorDataset(x[:96], y[:96]), batch_size=16, shuffle=True)
valid = DataLoader(TensorDataset(x[96:], y[96:]), batch_size=12)


def accuracy(out, labels):
    return (out.argmax(1) == labels).float().mean()


model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
for epoch in range(3):
    running = train_accuracy = 0.0
    for inputs, labels in train:
        out = model(inputs)
        loss = nn.functional.cross_entropy(out, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
        train_accuracy += accuracy(out, labels).item()
    model.eval()
    with torch.no_grad():
        means = [accuracy(model(a), b).item() for a, b in valid]
        losses = [nn.functional.cross_entropy(model(a), b).item() for a, b in valid]
    model.train()
    scheduler.step(sum(losses) / len(losses))
    print(f"{epoch} loss {running / len(train):.4f} train {train_accuracy / len(train):.3f}", end=" ")
    print(f"valid {sum(means) / len(means):.3f} rate {optimizer.param_groups[0]['lr']}")
