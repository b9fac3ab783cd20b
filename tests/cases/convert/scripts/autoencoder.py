import os

import torch
import torchvision
from torch import nn
from torch.autograd import Variable
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import MNIST
from torchvision.utils import save_image

if not os.path.exists('./restored'):
    os.mkdir('./restored')

torch.manual_seed(77)
use_cuda = torch.cuda.is_available()
if use_cuda:
    torch.cuda.manual_seed(77)


def as_pictures(x):
    # from [-1, 1] to [0, 1]
    return ((x + 1) / 2).clamp(0, 1).view(-1, 1, 28, 28)


EPOCHS = 3
BATCH = 80
RATE = 2e-3

img_transform = transforms.Compose([
    transforms.ToTensor(),
    transforms.Normalize((0.5,), (0.5,))
])

dataset = MNIST('./data', download=True, transform=img_transform)
dataloader = DataLoader(dataset, batch_size=BATCH, shuffle=True)


class Autoencoder(nn.Module):
    def __init__(self):
        super(Autoencoder, self).__init__()
        self.encoder = nn.Sequential(
            nn.Linear(28 * 28, 96),
            nn.ReLU(True),
            nn.Linear(96, 16))
        self.decoder = nn.Sequential(
            nn.Linear(16, 96),
            nn.ReLU(True),
            nn.Linear(96, 28 * 28),
            nn.Tanh())

    def forward(self, x):
        code = self.encoder(x)
        return self.decoder(code)


model = Autoencoder()
if use_cuda:
    model = model.cuda()
criterion = nn.MSELoss()
if use_cuda:
    criterion.cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=RATE, weight_decay=1e-5)

for epoch in range(EPOCHS):
    for data in dataloader:
        img, _ = data
        img = img.view(img.size(0), -1)
        img = Variable(img).cuda() if use_cuda else Variable(img)
        noise = torch.cuda.FloatTensor(img.size()).normal_() if use_cuda else torch.randn(img.size())
        output = model(img + 0.1 * noise)
        loss = criterion(output, img)

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print('after epoch {} of {}: last loss {:.4f}'
          .format(epoch + 1, EPOCHS, loss.data.item()))
    if epoch % 2 == 0:
        pictures = as_pictures(output.cpu().data)
        save_image(pictures, './restored/epoch_{}.png'.format(epoch))

torch.save(model.state_dict(), './autoencoder.pth')
