import itertools
import math
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(30)
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

# two sines added up; the decoder gives back both of them
t = torch.linspace(0, 1, 32)
phase = torch.rand(768, 2, 1) * 2 * math.pi
parts = torch.sin(2 * math.pi * torch.tensor([[2.], [5.]]) * t + phase)      # 768 x 2 x 32
mixed = parts.sum(1) + 0.05 * torch.randn(768, 32)

train_ds = TensorDataset(mixed[:640], parts[:640])
test_ds = TensorDataset(mixed[640:], parts[640:])
train_dl = DataLoader(train_ds, batch_size=32, shuffle=True)
test_dl = DataLoader(test_ds, batch_size=64)

encoder = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).to(device)
decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64)).to(device)
params = itertools.chain(encoder.parameters(), decoder.parameters())
optimizer = torch.optim.Adam(params, lr=3e-3)
mse = nn.MSELoss()

for epoch in range(1, 11):
    encoder.train(); decoder.train()
    for x, y in train_dl:
        x, y = x.to(device), y.to(device)
        code = encoder(x)
        out = decoder(code).view(-1, 2, 32)
        # a code that stays small, a sum that agrees with the input
        loss = mse(out, y) + 0.1 * mse(out.sum(1), x) + 1e-3 * code.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    encoder.eval(); decoder.eval()
    with torch.no_grad():
        err = sum(mse(decoder(encoder(x.to(device))).view(-1, 2, 32), y.to(device)).item() * len(x)
                  for x, y in test_dl) / len(test_ds)
    print("%2d  train %.5f  test %.5f" % (epoch, loss, err))

torch.save({'encoder': encoder.state_dict(), 'decoder': decoder.state_dict(),
            'optimizer': optimizer.state_dict()}, 'unmix.pt')
