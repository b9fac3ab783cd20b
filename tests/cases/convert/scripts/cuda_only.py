# needs a GPU: nothing here asks whether there is one
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
torch.backends.cudnn.benchmark = True

signal = torch.randn(5, 40)
labels = torch.randint(5, (1280,))
inputs = signal[labels] + 2 * torch.randn(1280, 40)
train_loader = DataLoader(TensorDataset(inputs[:1024], labels[:1024]), batch_size=32, shuffle=True, pin_memory=True)
test_loader = DataLoader(TensorDataset(inputs[1024:], labels[1024:]), batch_size=32)

model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 5)).cuda()
criterion = nn.CrossEntropyLoss().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(5):
    model.train()
    for x, y in train_loader:
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()

    model.eval()
    correct = torch.zeros(1, device='cuda')
    with torch.no_grad():
        for x, y in test_loader:
            correct += (model(x.cuda()).argmax(1) == y.cuda()).sum()
    print('epoch', epoch, 'last loss %.4f' % loss, 'accuracy %.3f' % (correct.item() / 256))

print('peak memory: %d KiB' % (torch.cuda.max_memory_allocated() / 1024))
torch.save(model.state_dict(), 'cuda_only.pt')
