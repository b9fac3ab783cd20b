import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torch.utils.data

# DCGAN after the tutorial, smaller and with hinge loss + spectral norm in D

manualSeed = 999
print("Random Seed: ", manualSeed)
random.seed(manualSeed)
torch.manual_seed(manualSeed)

batch_size = 64
image_size = 16
nc = 1
nz = 24
ngf = 24
ndf = 24
num_epochs = 4
lr_g, lr_d = 2e-3, 2e-4
beta1 = 0.5
workers = 0
n_critic = 2        # D updates per G update
outdir = "gan_samples"

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
os.makedirs(outdir, exist_ok=True)


class Rings(torch.utils.data.Dataset):
    def __init__(self, n=1024):
        rng = np.random.RandomState(4)
        yy, xx = np.mgrid[:image_size, :image_size].astype(np.float32)
        c = rng.uniform(6, 9, (n, 2)).astype(np.float32)
        r = rng.uniform(2.5, 5.5, n).astype(np.float32)
        d = np.sqrt((yy[None] - c[:, 0, None, None]) ** 2 + (xx[None] - c[:, 1, None, None]) ** 2)
        self.x = torch.from_numpy(2 * np.exp(-(d - r[:, None, None]) ** 2) - 1)[:, None]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]


dataloader = torch.utils.data.DataLoader(Rings(), batch_size=batch_size, shuffle=True, num_workers=workers, drop_last=True)


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.05)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),   # 4x4
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),  # 8x8
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, nc, 4, 2, 1, bias=False),       # 16x16
            nn.Tanh(),
        )

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        sn = nn.utils.spectral_norm
        self.main = nn.Sequential(
            sn(nn.Conv2d(nc, ndf, 4, 2, 1)), nn.LeakyReLU(0.2, inplace=True),
            sn(nn.Conv2d(ndf, ndf * 2, 4, 2, 1)), nn.LeakyReLU(0.2, inplace=True),
            sn(nn.Conv2d(ndf * 2, 1, 4, 1, 0)),
        )

    def forward(self, input):
        return self.main(input).view(-1)


netG = Generator().to(device)
netG.apply(weights_init)
netD = Discriminator().to(device)

fixed_noise = torch.randn(16, nz, 1, 1, device=device)
optimizerD = optim.Adam(netD.parameters(), lr=lr_d, betas=(beta1, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=lr_g, betas=(beta1, 0.999))
schedD = optim.lr_scheduler.LinearLR(optimizerD, 1.0, 0.2, total_iters=num_epochs)
schedG = optim.lr_scheduler.LinearLR(optimizerG, 1.0, 0.2, total_iters=num_epochs)

real_all = next(iter(torch.utils.data.DataLoader(Rings(), batch_size=256))).to(device)


def moment_gap():
    """Distance between pixel mean/std images of real and generated data (poor man's FID)."""
    netG.eval()
    with torch.no_grad():
        fake = netG(torch.randn(256, nz, 1, 1, device=device))
    netG.train()
    return ((fake.mean(0) - real_all.mean(0)).pow(2).mean() + (fake.std(0) - real_all.std(0)).pow(2).mean()).sqrt().item()


def save_pgm(x, path):
    x = ((x.clamp(-1, 1) + 1) * 127.5).byte().cpu().view(4, 4, image_size, image_size)
    x = x.permute(0, 2, 1, 3).reshape(4 * image_size, 4 * image_size)
    with open(path, "wb") as f:
        f.write(b"P5 %d %d 255\n" % (x.shape[1], x.shape[0]) + x.numpy().tobytes())


G_losses, D_losses = [], []
iters = 0
print("Starting Training Loop... gap %.4f" % moment_gap())
for epoch in range(num_epochs):
    for i, data in enumerate(dataloader, 0):
        # (1) update D
        real = data.to(device)
        b_size = real.size(0)
        netD.zero_grad()
        noise = torch.randn(b_size, nz, 1, 1, device=device)
        fake = netG(noise)
        out_real = netD(real)
        out_fake = netD(fake.detach())
        errD = F.relu(1 - out_real).mean() + F.relu(1 + out_fake).mean()
        errD.backward()
        optimizerD.step()
        D_losses.append(errD.item())

        # (2) update G every n_critic steps
        if iters % n_critic == 0:
            netG.zero_grad()
            out = netD(fake)
            errG = -out.mean()
            errG.backward()
            optimizerG.step()
            G_losses.append(errG.item())

        if i % 8 == 0:
            print("[%d/%d][%2d/%d]\tLoss_D: %.4f\tLoss_G: %.4f\tD(x): %.3f\tD(G(z)): %.3f"
                  % (epoch, num_epochs, i, len(dataloader), D_losses[-1], G_losses[-1],
                     out_real.mean().item(), out_fake.mean().item()))
        iters += 1
    schedD.step()
    schedG.step()
    netG.eval()
    with torch.no_grad():
        save_pgm(netG(fixed_noise), "%s/epoch_%03d.pgm" % (outdir, epoch))
    netG.train()
    print("epoch %d moment gap %.4f" % (epoch, moment_gap()))
    torch.save(netG.state_dict(), "%s/netG_last.pth" % outdir)
    torch.save(netD.state_dict(), "%s/netD_last.pth" % outdir)
