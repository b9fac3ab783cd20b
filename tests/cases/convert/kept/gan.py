"""Two optimizers, turn by turn, and weights clipped by hand."""

import torch
from torch import nn, optim
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

loader = DataLoader(
    datasets.CIFAR10("data", transform=transforms.ToTensor()), batch_size=64, shuffle=True
)
netG = nn.Sequential(nn.Linear(100, 3072), nn.Tanh()).cuda()
netD = nn.Sequential(nn.Linear(3072, 1)).cuda()
fixed_noise = torch.randn(64, 100).cuda()
optimizerD, optimizerG = optim.RMSprop(netD.parameters()), optim.RMSprop(netG.parameters())
for epoch in range(25):
    for i, (data, _) in enumerate(loader, 0):
        netD.zero_grad()
        real = data.flatten(1).cuda()
        errD_real = -netD(real).mean()
        errD_real.backward()
        fake = netG(torch.randn(real.size(0), 100).cuda())
        errD_fake = netD(fake.detach()).mean()
        errD_fake.backward()
        optimizerD.step()
        for p in netD.parameters():
            p.data.clamp_(-0.01, 0.01)
        netG.zero_grad()
        errG = -netD(fake).mean()
        errG.backward()
        optimizerG.step()
    with torch.no_grad():
        netG(fixed_noise)
