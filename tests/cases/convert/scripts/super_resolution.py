from math import log10, pi

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset
import argparse

# Settings
parser = argparse.ArgumentParser(description='twice the size')
parser.add_argument('--upscale_factor', type=int, default=2)
parser.add_argument('--batchSize', type=int, default=16)
parser.add_argument('--testBatchSize', type=int, default=8)
parser.add_argument('--nEpochs', type=int, default=4)
parser.add_argument('--lr', type=float, default=0.005)
parser.add_argument('--cuda', action='store_true')
parser.add_argument('--threads', type=int, default=0)
parser.add_argument('--seed', type=int, default=321)
opt = parser.parse_args()

print(opt)

if opt.cuda and not torch.cuda.is_available():
    raise Exception("no GPU here, leave out --cuda")

torch.manual_seed(opt.seed)

device = torch.device("cuda" if opt.cuda else "cpu")


class Ripples(Dataset):
    """Pictures of waves; the input is each picture at half its size."""

    def __init__(self, count, seed, factor=2, size=24):
        super(Ripples, self).__init__()
        g = torch.Generator().manual_seed(seed)
        self.waves = torch.rand(count, 3, generator=g)
        self.factor = factor
        self.size = size

    def __getitem__(self, index):
        a, b, c = self.waves[index]
        t = torch.linspace(0, 1, self.size)
        target = 0.5 + 0.5 * torch.sin(2 * pi * ((2 + 4 * a) * t[:, None] + (2 + 4 * b) * t[None, :] + c))
        target = target.unsqueeze(0)
        input = nn.functional.avg_pool2d(target, self.factor)
        return input, target

    def __len__(self):
        return len(self.waves)


print('===> Loading datasets')
train_set = Ripples(256, seed=1, factor=opt.upscale_factor)
test_set = Ripples(64, seed=2, factor=opt.upscale_factor)
training_data_loader = DataLoader(dataset=train_set, num_workers=opt.threads, batch_size=opt.batchSize, shuffle=True)
testing_data_loader = DataLoader(dataset=test_set, num_workers=opt.threads, batch_size=opt.testBatchSize, shuffle=False)


class Upscaler(nn.Module):
    def __init__(self, factor):
        super(Upscaler, self).__init__()
        self.act = nn.LeakyReLU(0.1)
        self.first = nn.Conv2d(1, 24, 5, padding=2)
        self.second = nn.Conv2d(24, 16, 3, padding=1)
        self.last = nn.Conv2d(16, factor ** 2, 3, padding=1)
        self.shuffle = nn.PixelShuffle(factor)
        for m in (self.first, self.second):
            nn.init.orthogonal_(m.weight, nn.init.calculate_gain('leaky_relu', 0.1))
        nn.init.orthogonal_(self.last.weight)

    def forward(self, x):
        return self.shuffle(self.last(self.act(self.second(self.act(self.first(x))))))


print('===> Building model')
model = Upscaler(opt.upscale_factor).to(device)
criterion = nn.MSELoss()

optimizer = optim.Adam(model.parameters(), lr=opt.lr)


def train(epoch):
    epoch_loss = 0
    for iteration, batch in enumerate(training_data_loader, 1):
        input, target = batch[0].to(device), batch[1].to(device)

        optimizer.zero_grad()
        loss = criterion(model(input), target)
        epoch_loss += loss.item()
        loss.backward()
        optimizer.step()

        if iteration % 4 == 0:
            print("===> epoch {}, {}/{}: {:.5f}".format(epoch, iteration, len(training_data_loader), loss.item()))

    print("===> epoch {} done, mean loss {:.5f}".format(epoch, epoch_loss / len(training_data_loader)))


def test():
    # One value per batch, so the mean of the logarithms depends on how the batches are cut
    avg_psnr = 0
    with torch.no_grad():
        for batch in testing_data_loader:
            input, target = batch[0].to(device), batch[1].to(device)

            prediction = model(input)
            mse = criterion(prediction, target)
            psnr = 10 * log10(1 / mse.item())
            avg_psnr += psnr
    print("===> mean PSNR {:.4f} dB".format(avg_psnr / len(testing_data_loader)))


def checkpoint(epoch):
    model_out_path = "upscaler_{}.pth".format(epoch)
    torch.save(model, model_out_path)
    print("Checkpoint in {}".format(model_out_path))


for epoch in range(1, opt.nEpochs + 1):
    train(epoch)
    test()
    checkpoint(epoch)
