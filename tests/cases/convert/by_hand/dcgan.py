import argparse
import builtins
import gc
import os
import random

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.parallel
import torch.backends.cudnn as cudnn
import torch.optim as optim
import torch.utils.data
import torchvision.datasets as dset
import torchvision.transforms as transforms
import torchvision.utils as vutils

parser = argparse.ArgumentParser()
parser.add_argument('--dataroot', default='data', help='where the images lie')
parser.add_argument('--workers', type=int, default=0)
parser.add_argument('--batchSize', type=int, default=100)
parser.add_argument('--nz', type=int, default=24, help='length of the noise vector')
parser.add_argument('--ngf', type=int, default=8)
parser.add_argument('--ndf', type=int, default=8)
parser.add_argument('--niter', type=int, default=2, help='epochs')
parser.add_argument('--lr', type=float, default=0.001)
parser.add_argument('--beta1', type=float, default=0.5)
parser.add_argument('--netG', default='', help="generator to go on with")
parser.add_argument('--netD', default='', help="discriminator to go on with")
parser.add_argument('--outf', default='gan', help='folder for images and weights')
parser.add_argument('--manualSeed', type=int, default=17)
opt = parser.parse_args()

# torchrun starts one process per GPU; without it this is the only one
distributed = 'RANK' in os.environ
rank, world_size = int(os.environ.get('RANK', 0)), int(os.environ.get('WORLD_SIZE', 1))
local_rank = int(os.environ.get('LOCAL_RANK', 0))
if distributed:
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
    dist.init_process_group('nccl' if torch.cuda.is_available() else 'gloo')
if opt.batchSize % world_size:
    raise SystemExit('a batch of %d cannot be cut into %d equal parts' % (opt.batchSize, world_size))


def print(*args, **kwargs):
    if rank == 0:
        builtins.print(*args, **kwargs)


print(opt)

try:
    os.makedirs(opt.outf)
except OSError:
    pass

if opt.manualSeed is None:
    seed = [random.randint(1, 10000)]
    if distributed:
        dist.broadcast_object_list(seed)
    opt.manualSeed, = seed
print("Seed:", opt.manualSeed)
random.seed(opt.manualSeed)
torch.manual_seed(opt.manualSeed)

cudnn.benchmark = True

if local_rank > 0:
    dist.barrier()  # the first rank of each machine downloads
dataset = dset.MNIST(root=opt.dataroot, download=True,
                     transform=transforms.Compose([
                         transforms.Resize(32),
                         transforms.ToTensor(),
                         transforms.Normalize((0.5,), (0.5,)),
                     ]))
if distributed and local_rank == 0:
    dist.barrier()
nc = 1
assert dataset
sampler = torch.utils.data.distributed.DistributedSampler(dataset, seed=opt.manualSeed) if distributed else None
dataloader = torch.utils.data.DataLoader(dataset, batch_size=opt.batchSize // world_size, sampler=sampler,
                                         shuffle=not distributed, num_workers=int(opt.workers))

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
nz = int(opt.nz)
ngf = int(opt.ngf)
ndf = int(opt.ndf)


# start values for the weights of netG and netD
def weights_init(m):
    kind = type(m).__name__
    if 'Conv' in kind:
        nn.init.normal_(m.weight, 0.0, 0.05)
    elif 'BatchNorm' in kind:
        nn.init.normal_(m.weight, 1.0, 0.05)
        nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 4, 4, 1, 0, bias=False),       # 4 x 4
            nn.BatchNorm2d(ngf * 4),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=False),  # 8 x 8
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),      # 16 x 16
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, nc, 4, 2, 1, bias=False),           # 32 x 32
            nn.Tanh()
        )

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.main = nn.Sequential(
            nn.Conv2d(nc, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, ndf * 4, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 4),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 4, 1, 4, 1, 0, bias=False),
            nn.Sigmoid()
        )

    def forward(self, input):
        return self.main(input).view(-1)


netG = Generator().to(device)
netG.apply(weights_init)
if opt.netG != '':
    netG.load_state_dict(torch.load(opt.netG, map_location=device))
print(netG)

netD = Discriminator().to(device)
netD.apply(weights_init)
if opt.netD != '':
    netD.load_state_dict(torch.load(opt.netD, map_location=device))
print(netD)

# Statistics over the whole batch; on the CPU torch has none, and each rank takes those of its own part
if distributed and device.type == "cuda":
    netG = nn.SyncBatchNorm.convert_sync_batchnorm(netG)
    netD = nn.SyncBatchNorm.convert_sync_batchnorm(netD)
ddpG = nn.parallel.DistributedDataParallel(netG) if distributed else netG
ddpD = nn.parallel.DistributedDataParallel(netD) if distributed else netD


def mean_over_ranks(*values):
    means = torch.tensor(values, dtype=torch.float64, device=device) / world_size
    if distributed:
        dist.all_reduce(means)
    return means.tolist()


criterion = nn.BCELoss()

fixed_noise = torch.randn(opt.batchSize, nz, 1, 1, device=device)
REAL = 1.
MADE = 0.

optimizerD = optim.Adam(netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))

for epoch in range(opt.niter):
    if distributed:
        sampler.set_epoch(epoch)
    for i, data in enumerate(dataloader, 0):
        # --- discriminator: real images up, made ones down ---
        netD.zero_grad()
        real = data[0].to(device)
        batch_size = real.size(0)
        label = torch.full((batch_size,), REAL, dtype=real.dtype, device=device)
        output = ddpD(real)
        loss_real = criterion(output, label)
        loss_real.backward()
        on_real = output.mean().item()

        # every rank draws the noise of the whole batch and takes its part
        noise = torch.randn(batch_size * world_size, nz, 1, 1, device=device)[rank::world_size]
        fake = ddpG(noise)
        label.fill_(MADE)
        output = ddpD(fake.detach())
        loss_fake = criterion(output, label)
        loss_fake.backward()
        on_made = output.mean().item()
        loss_D = loss_real + loss_fake
        optimizerD.step()

        # --- generator: made images up ---
        netG.zero_grad()
        label.fill_(REAL)
        output = netD(fake)  # not through ddpD: this backward is for netG alone
        loss_G = criterion(output, label)
        loss_G.backward()
        on_made_after = output.mean().item()
        optimizerG.step()

        if i % 5 == 0:
            print('[%d/%d][%d/%d] losses %.4f and %.4f, verdict on real %.4f, on made %.4f, then %.4f'
                  % (epoch, opt.niter, i, len(dataloader),
                     *mean_over_ranks(loss_D.item(), loss_G.item(), on_real, on_made, on_made_after)))
        if i % 20 == 0:
            fake = netG(fixed_noise)  # on all ranks: it also moves the running statistics
            if rank == 0:
                vutils.save_image(real, '%s/real.png' % opt.outf, normalize=True)
                vutils.save_image(fake.detach(), '%s/made_%03d.png' % (opt.outf, epoch), normalize=True)

    # checkpoint
    if rank == 0:
        torch.save(netG.state_dict(), '%s/netG_%d.pth' % (opt.outf, epoch))
        torch.save(netD.state_dict(), '%s/netD_%d.pth' % (opt.outf, epoch))

if distributed:
    del ddpG, ddpD  # a wrapper that is still alive may abort the process when the group ends
    gc.collect()
    dist.destroy_process_group()
