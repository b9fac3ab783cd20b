"""The batch size is a number inside the loop: hidden states, shapes, targets of ones."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
batch_size = 16
series = torch.sin(torch.arange(0, 400) * 0.1)
windows = torch.stack([series[i : i + 12] for i in range(160)])
loader = DataLoader(TensorDataset(windows, series[12:172]), batch_size=batch_size, shuffle=True, drop_last=True)


class Rnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, 8, batch_first=True)
        self.out = nn.Linear(8, 1)

    def init_hidden(self, size):
        return torch.zeros(1, size, 8)

    def forward(self, x, hidden):
        y, hidden = self.rnn(x, hidden)
        return self.out(y[:, -1]), hidden


model = Rnn()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(2):
    for x, y in loader:
        hidden = model.init_hidden(batch_size)
        x = x.reshape(batch_size, 12, 1)
        out, hidden = model(x, hidden)
        loss = nn.functional.mse_loss(out.view(batch_size), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.5f}")
