from __future__ import print_function
import argparse
import builtins
import gc
import os
import torch
import torch.distributed as dist
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms
from torchvision.utils import save_image


parser = argparse.ArgumentParser(description='variational autoencoder of digits')
parser.add_argument('--batch-size', type=int, default=100, metavar='N')
parser.add_argument('--epochs', type=int, default=3, metavar='N')
parser.add_argument('--no-cuda', action='store_true', default=False)
parser.add_argument('--seed', type=int, default=5, metavar='S')
parser.add_argument('--log-interval', type=int, default=5, metavar='N')
args = parser.parse_args()
args.cuda = not args.no_cuda and torch.cuda.is_available()

# torchrun starts one process per GPU; without it this is the only one
distributed = 'RANK' in os.environ
rank, world_size = int(os.environ.get('RANK', 0)), int(os.environ.get('WORLD_SIZE', 1))
local_rank = int(os.environ.get('LOCAL_RANK', 0))
if distributed:
    if args.cuda:
        torch.cuda.set_device(local_rank)
    dist.init_process_group('nccl' if args.cuda else 'gloo')
if args.batch_size % world_size:
    raise SystemExit('a batch of %d cannot be cut into %d equal parts' % (args.batch_size, world_size))

torch.manual_seed(args.seed)

device = torch.device("cuda" if args.cuda else "cpu")
os.makedirs('pictures', exist_ok=True)


def print(*args, **kwargs):
    if rank == 0:
        builtins.print(*args, **kwargs)


def over_ranks(*values):
    """The sum of each value over all ranks; all of them must call this."""
    sums = torch.tensor(values, dtype=torch.float64, device=device)
    if distributed:
        dist.all_reduce(sums)
    return sums.tolist()


kwargs = {'num_workers': 1, 'pin_memory': True} if args.cuda else {}
if local_rank > 0:
    dist.barrier()  # the first rank of each machine downloads
train_set = datasets.MNIST('data', train=True, download=True, transform=transforms.ToTensor())
if distributed and local_rank == 0:
    dist.barrier()
test_set = datasets.MNIST('data', train=False, transform=transforms.ToTensor())
train_sampler = DistributedSampler(train_set, seed=args.seed) if distributed else None
train_loader = torch.utils.data.DataLoader(
    train_set,
    batch_size=args.batch_size // world_size, shuffle=not distributed, sampler=train_sampler, **kwargs)
test_loader = torch.utils.data.DataLoader(
    test_set,
    batch_size=args.batch_size // world_size, sampler=range(rank, len(test_set), world_size), **kwargs)


class Vae(nn.Module):
    def __init__(self, code=12):
        super(Vae, self).__init__()
        self.inner = nn.Linear(784, 128)
        self.mean = nn.Linear(128, code)
        self.spread = nn.Linear(128, code)
        self.outer = nn.Linear(code, 128)
        self.pixels = nn.Linear(128, 784)

    def encode(self, x):
        h = torch.relu(self.inner(x))
        return self.mean(h), self.spread(h)

    def sample(self, mu, logvar):
        # Every rank draws the noise of the whole batch, and takes that of its own images
        noise = torch.randn(len(mu) * world_size, mu.size(1), device=mu.device)[rank::world_size]
        return mu + noise * torch.exp(logvar / 2)

    def decode(self, z):
        return torch.sigmoid(self.pixels(torch.relu(self.outer(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 784))
        return self.decode(self.sample(mu, logvar)), mu, logvar


model = Vae().to(device)
ddp = DistributedDataParallel(model) if distributed else model
optimizer = optim.Adam(model.parameters(), lr=1e-3)


# Sums over all pixels and all images of the batch
def loss_function(recon, x, mu, logvar):
    bce = F.binary_cross_entropy(recon, x.view(-1, 784), reduction='sum')
    kld = 0.5 * torch.sum(mu ** 2 + logvar.exp() - logvar - 1)
    return bce + kld


def train(epoch):
    model.train()
    if distributed:
        train_sampler.set_epoch(epoch)
    train_loss = 0
    for batch_idx, (data, _) in enumerate(train_loader):
        data = data.to(device)
        optimizer.zero_grad()
        recon, mu, logvar = ddp(data)
        loss = loss_function(recon, data, mu, logvar)
        (loss * world_size).backward()  # DDP takes the mean of the ranks, the loss is a sum
        train_loss += loss.item()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            batch_loss, batch_len = over_ranks(loss.item(), len(data))
            print('epoch {}: {:5d}/{} images, loss per image {:.3f}'.format(
                epoch, batch_idx * int(batch_len), len(train_loader.dataset),
                batch_loss / batch_len))

    train_loss, = over_ranks(train_loss)
    print('== epoch {}: {:.4f} on average'.format(
          epoch, train_loss / len(train_loader.dataset)))


def test(epoch):
    model.eval()
    test_loss = 0
    with torch.no_grad():
        for i, (data, _) in enumerate(test_loader):
            data = data.to(device)
            recon, mu, logvar = model(data)
            test_loss += loss_function(recon, data, mu, logvar).item()
            if i == 0 and rank == 0:
                n = min(data.size(0), 8)
                pairs = torch.cat([data[:n], recon.view(-1, 1, 28, 28)[:n]])
                save_image(pairs.cpu(), 'pictures/pairs_' + str(epoch) + '.png', nrow=n)

    test_loss, = over_ranks(test_loss)
    test_loss /= len(test_loader.dataset)
    print('== held out: {:.4f}'.format(test_loss))


if __name__ == "__main__":
    for epoch in range(1, args.epochs + 1):
        train(epoch)
        test(epoch)
        with torch.no_grad():
            z = torch.randn(36, 12).to(device)
            drawn = model.decode(z).cpu()
            if rank == 0:
                save_image(drawn.view(36, 1, 28, 28),
                           'pictures/drawn_' + str(epoch) + '.png')
    if distributed:
        del ddp  # a wrapper that is still alive may abort the process when the group ends
        gc.collect()
        dist.destroy_process_group()
