"""Clothes, with a perceptron. The loaders get their settings from one dict."""
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets
from torchvision.transforms import ToTensor

BATCH = 100
EPOCHS = 3

torch.manual_seed(11)
device = "cuda" if torch.cuda.is_available() else "cpu"
print(f"Using {device}")

clothes = datasets.FashionMNIST(root="data", train=True, download=True, transform=ToTensor())
unseen_clothes = datasets.FashionMNIST(root="data", train=False, download=True, transform=ToTensor())

kwargs = {'batch_size': BATCH}
if device == 'cuda':
    kwargs['num_workers'] = 2
    kwargs['pin_memory'] = True
train_batches = DataLoader(clothes, shuffle=True, **kwargs)
test_batches = DataLoader(unseen_clothes, **kwargs)

for X, y in test_batches:
    print(f"A batch: {tuple(X.shape)} {X.dtype}, labels {tuple(y.shape)} {y.dtype}")
    break


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.flat = nn.Flatten()
        self.layers = nn.Sequential(
            nn.Linear(784, 96),
            nn.Tanh(),
            nn.Linear(96, 96),
            nn.Tanh(),
            nn.Linear(96, 10),
        )

    def forward(self, x):
        return self.layers(self.flat(x))


model = Net().to(device)
print(model)

loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=5e-2, momentum=0.9)


def train_loop(dataloader, model, loss_fn, optimizer):
    size = len(dataloader.dataset)
    model.train()
    for batch, (X, y) in enumerate(dataloader):
        X, y = X.to(device), y.to(device)

        pred = model(X)
        loss = loss_fn(pred, y)

        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

        if batch % 10 == 0:
            loss = loss.item()
            print(f"  {(batch + 1) * len(X):>6} of {size} seen, loss {loss:.5f}")


def test_loop(dataloader, model, loss_fn):
    size = len(dataloader.dataset)
    num_batches = len(dataloader)
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for X, y in dataloader:
            X, y = X.to(device), y.to(device)
            pred = model(X)
            test_loss += loss_fn(pred, y).item()
            correct += (pred.argmax(1) == y).float().sum().item()
    test_loss /= num_batches
    correct /= size
    print(f"Test: {100 * correct:.1f}% right, loss {test_loss:.6f}\n")


for t in range(EPOCHS):
    print(f"--- epoch {t + 1} ---")
    train_loop(train_batches, model, loss_fn, optimizer)
    test_loop(test_batches, model, loss_fn)

torch.save(model.state_dict(), "fashion.pth")
print("Saved to fashion.pth")

# Back from the disk, one prediction
names = ["top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]
model = Net().to(device)
model.load_state_dict(torch.load("fashion.pth", weights_only=True))
model.eval()
x, y = unseen_clothes[0][0], unseen_clothes[0][1]
with torch.no_grad():
    pred = model(x.to(device))
    print(f'Says "{names[pred[0].argmax(0)]}", is "{names[y]}"')
