import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(12, 8), nn.Linear(4, 12)

    def forward(self, x):
        mean, logvar = self.encoder(x).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * logvar)
        return self.decoder(z), mean, logvar


def loss_function(x, output, mean, logvar):
    divergence = -0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
    return nn.functional.mse_loss(output, x, reduction="sum") + divergence


data = TensorDataset(torch.randn(128, 12))
loader = DataLoader(data, batch_size=16, shuffle=True)
test_loader = DataLoader(TensorDataset(torch.randn(64, 12)), batch_size=16)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(1, 5):
    model.train()
    for (x,) in loader:
        optimizer.zero_grad()
        loss = loss_function(x, *model(x))
        loss.backward()
        optimizer.step()
    model.eval()
    total = 0
    with torch.no_grad():
        for (x,) in test_loader:
            total += loss_function(x, *model(x)).item()
    print("test loss", total / len(test_loader.dataset))
    with torch.no_grad():
        picture = model.decoder(torch.randn(8, 4))
    print("mean of samples", picture.mean().item())
