# Digits read row by row
import torch
import torch.nn as nn
import torchvision
import torchvision.transforms as transforms

torch.manual_seed(8)

# Device configuration
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

# Hyper-parameters
ROWS = 28
WIDTH = 28
HIDDEN = 40
LAYERS = 1
CLASSES = 10
batch_size = 100
num_epochs = 3
learning_rate = 0.01

train_dataset = torchvision.datasets.MNIST(root='data/', train=True, transform=transforms.ToTensor(), download=True)
test_dataset = torchvision.datasets.MNIST(root='data/', train=False, transform=transforms.ToTensor())

train_loader = torch.utils.data.DataLoader(dataset=train_dataset, batch_size=batch_size, shuffle=True)
test_loader = torch.utils.data.DataLoader(dataset=test_dataset, batch_size=batch_size, shuffle=False)


class RNN(nn.Module):
    def __init__(self, width, hidden, layers, classes):
        super(RNN, self).__init__()
        self.hidden = hidden
        self.layers = layers
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x):
        start = torch.zeros(self.layers, x.size(0), self.hidden).to(device)
        out, _ = self.lstm(x, (start, start))
        return self.fc(out[:, -1, :])


model = RNN(WIDTH, HIDDEN, LAYERS, CLASSES).to(device)

criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)

# Train
total_step = len(train_loader)
for epoch in range(num_epochs):
    for i, (images, labels) in enumerate(train_loader):
        images = images.reshape(-1, ROWS, WIDTH).to(device)
        labels = labels.to(device)

        outputs = model(images)
        loss = criterion(outputs, labels)

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        if (i+1) % 5 == 0:
            print ('epoch {}/{}, step {}/{}: {:.4f}'.format(epoch+1, num_epochs, i+1, total_step, loss.item()))

# Test
model.eval()
with torch.no_grad():
    correct = 0
    total = 0
    for images, labels in test_loader:
        images = images.reshape(-1, ROWS, WIDTH).to(device)
        labels = labels.to(device)
        outputs = model(images)
        _, predicted = torch.max(outputs.data, 1)
        total += labels.size(0)
        correct += (predicted == labels).sum().item()

    print('Right on {} test images: {} %'.format(total, 100 * correct / total))

torch.save(model.state_dict(), 'rows.ckpt')
