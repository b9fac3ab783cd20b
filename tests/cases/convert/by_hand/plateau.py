# uneven: 150 validation and 150 test samples, in batches of 32
import builtins
import gc
import os
import numpy as np
import random
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import BatchSampler, Dataset, DataLoader, DistributedSampler

SEED = 2024
BATCH_SIZE = 32
EPOCHS = 12
CKPT = os.path.join('ckpt', 'best.pth')

# torchrun starts one process per GPU; without it this is the only one
distributed = 'RANK' in os.environ
rank, world_size = int(os.environ.get('RANK', 0)), int(os.environ.get('WORLD_SIZE', 1))
if distributed:
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
    dist.init_process_group('nccl' if torch.cuda.is_available() else 'gloo')
if BATCH_SIZE % world_size:
    raise SystemExit('a batch of %d cannot be cut into %d equal parts' % (BATCH_SIZE, world_size))


def print(*args, **kwargs):
    if rank == 0:
        builtins.print(*args, **kwargs)


def over_ranks(*values, device):
    """The sum of each value over all ranks; all of them must call this."""
    sums = torch.tensor(values, dtype=torch.float64, device=device)
    if distributed:
        dist.all_reduce(sums)
    return sums.tolist()


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
        torch.backends.cudnn.deterministic = True


class ToneDataset(Dataset):
    """Noisy tones; which of four pitches is it?"""

    def __init__(self, n, seed):
        rng = np.random.RandomState(seed)
        self.y = rng.randint(0, 4, size=n)
        t = np.linspace(0, 1, 64)
        phase = rng.rand(n, 1) * 2 * np.pi
        self.x = np.sin(2 * np.pi * (self.y[:, None] * 2 + 3) * t + phase) + rng.randn(n, 64) * 1.0

    def __len__(self):
        return self.y.shape[0]

    def __getitem__(self, idx):
        return torch.as_tensor(self.x[idx], dtype=torch.float32), int(self.y[idx])


class ToneNet(nn.Module):
    def __init__(self):
        super(ToneNet, self).__init__()
        self.conv = nn.Conv1d(1, 12, 9, padding=4)
        self.conv2 = nn.Conv1d(12, 12, 9, padding=4)
        self.fc = nn.Linear(12 * 16, 4)

    def forward(self, x):
        x = F.max_pool1d(F.relu(self.conv(x.unsqueeze(1))), 2)
        x = F.max_pool1d(F.relu(self.conv2(x)), 2)
        return self.fc(x.flatten(1))


def run_eval(model, loader, criterion, device):
    model.eval()
    losses, correct = [], 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        with torch.no_grad():
            out = model(x)
        losses.append(criterion(out, y).item())
        correct += (out.argmax(dim=1) == y).sum().item()
    loss_sum, batches, correct = over_ranks(sum(losses), len(losses), correct, device=device)
    return loss_sum / batches, correct / len(loader.dataset)


def whole_batches(dataset):
    """A loader whose batches are those of one process, dealt to the ranks."""
    batches = list(BatchSampler(range(len(dataset)), BATCH_SIZE, drop_last=False))
    return DataLoader(dataset, batch_sampler=batches[rank::world_size])


def main():
    seed_everything(SEED)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    os.makedirs(os.path.dirname(CKPT), exist_ok=True)

    train_set = ToneDataset(640, 0)
    sampler = DistributedSampler(train_set, seed=SEED) if distributed else None
    train_loader = DataLoader(train_set, BATCH_SIZE // world_size, shuffle=not distributed, sampler=sampler,
                              drop_last=True)
    val_loader = whole_batches(ToneDataset(150, 1))
    test_loader = whole_batches(ToneDataset(150, 2))

    model = ToneNet().to(device)
    ddp = DistributedDataParallel(model) if distributed else model
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.004)
    scheduler = ReduceLROnPlateau(optimizer, mode='min', factor=0.3, patience=1)

    best_loss = np.inf
    for epoch in range(1, EPOCHS + 1):
        model.train()
        if distributed:
            sampler.set_epoch(epoch)
        train_losses = []
        for x, y in train_loader:
            x = x.to(device)
            y = y.to(device)
            optimizer.zero_grad()
            loss = criterion(ddp(x), y)
            loss.backward()
            optimizer.step()
            train_losses.append(loss.item())

        train_loss = over_ranks(np.mean(train_losses), device=device)[0] / world_size
        val_loss, val_acc = run_eval(model, val_loader, criterion, device)
        scheduler.step(val_loss)
        print('%2d/%d  train %.4f  val %.4f  acc %.3f  lr %.5f' % (
            epoch, EPOCHS, train_loss, val_loss, val_acc, optimizer.param_groups[0]['lr']))

        if val_loss < best_loss:
            print('      better than %.4f, saved' % best_loss)
            best_loss = val_loss
            if rank == 0:
                torch.save({'epoch': epoch, 'state_dict': model.state_dict(), 'best_loss': best_loss}, CKPT)

    # the best one, once on the test set
    if distributed:
        dist.barrier()  # until rank 0 has written
    ckpt = torch.load(CKPT, map_location=device, weights_only=False)
    model.load_state_dict(ckpt['state_dict'])
    test_loss, test_acc = run_eval(model, test_loader, criterion, device)
    print('test (weights of epoch %d): loss %.4f, acc %.3f' % (ckpt['epoch'], test_loss, test_acc))


if __name__ == '__main__':
    main()
    if distributed:
        gc.collect()  # a wrapper that is still alive may abort the process when the group ends
        dist.destroy_process_group()
