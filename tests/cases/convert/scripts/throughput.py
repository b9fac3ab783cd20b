import argparse
import time
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class AverageMeter(object):
    """The last value and the mean of all."""

    def __init__(self, name, fmt=':f'):
        self.name = name
        self.fmt = fmt
        self.reset()

    def reset(self):
        self.val = self.sum = self.avg = 0.
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return ('{name} {val' + self.fmt + '} (mean {avg' + self.fmt + '})').format(**self.__dict__)


class Patches(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.y = torch.randint(5, (n,), generator=g)
        self.x = torch.randn(n, 1, 12, 12, generator=g)
        for i, label in enumerate(self.y):
            self.x[i, 0, 2 * label:2 * label + 2] += 0.6

    def __getitem__(self, i):
        return self.x[i], self.y[i]

    def __len__(self):
        return len(self.y)


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1)
        hit = pred == target[:, None]
        return [100. * hit[:, :k].any(1).float().mean().item() for k in topk]


def train(loader, model, criterion, optimizer, epoch, device, args):
    batch_time = AverageMeter('time', ':6.4f')
    data_time = AverageMeter('data', ':6.4f')
    losses = AverageMeter('loss', ':.4f')
    top1 = AverageMeter('top1', ':6.2f')
    model.train()

    start = end = time.perf_counter()
    images_seen = 0
    for i, (images, target) in enumerate(loader):
        data_time.update(time.perf_counter() - end)
        images = images.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)

        output = model(images)
        loss = criterion(output, target)

        acc1, = accuracy(output, target)
        losses.update(loss.item(), images.size(0))
        top1.update(acc1, images.size(0))
        images_seen += images.size(0)

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        batch_time.update(time.perf_counter() - end)
        end = time.perf_counter()
        if i % args.print_freq == 0:
            print('\t'.join([f'Epoch {epoch} [{i}/{len(loader)}]', str(batch_time), str(data_time), str(losses), str(top1)]))
    if device.type == 'cuda':
        torch.cuda.synchronize()
    print('%.0f samples/s' % (images_seen / (time.perf_counter() - start)))


def validate(loader, model, criterion, device):
    losses, top1, top2 = AverageMeter('loss', ':.4f'), AverageMeter('top1', ':6.2f'), AverageMeter('top2', ':6.2f')
    model.eval()
    with torch.no_grad():
        for images, target in loader:
            images, target = images.to(device), target.to(device)
            output = model(images)
            acc1, acc2 = accuracy(output, target, topk=(1, 2))
            losses.update(criterion(output, target).item(), images.size(0))
            top1.update(acc1, images.size(0))
            top2.update(acc2, images.size(0))
    print(' * loss {losses.avg:.4f} top1 {top1.avg:.3f} top2 {top2.avg:.3f}'.format(losses=losses, top1=top1, top2=top2))
    return top1.avg


def save_checkpoint(state, is_best, filename='checkpoint.pth.tar'):
    torch.save(state, filename)
    if is_best:
        torch.save(state, 'model_best.pth.tar')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--epochs', default=3, type=int)
    parser.add_argument('-b', '--batch-size', default=64, type=int)
    parser.add_argument('--lr', default=0.05, type=float)
    parser.add_argument('-j', '--workers', default=0, type=int)
    parser.add_argument('-p', '--print-freq', default=5, type=int)
    parser.add_argument('--resume', default='', type=str)
    parser.add_argument('--seed', default=0, type=int)
    parser.add_argument('-e', '--evaluate', action='store_true')
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(),
                          nn.Flatten(), nn.Linear(8 * 16, 5)).to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)

    best_acc1 = 0
    start_epoch = 0
    if args.resume:
        checkpoint = torch.load(args.resume)
        start_epoch = checkpoint['epoch']
        best_acc1 = checkpoint['best_acc1']
        model.load_state_dict(checkpoint['state_dict'])
        optimizer.load_state_dict(checkpoint['optimizer'])
        print("=> '{}' read, {} epochs done".format(args.resume, checkpoint['epoch']))

    train_loader = DataLoader(Patches(1024, 0), batch_size=args.batch_size, shuffle=True,
                              num_workers=args.workers, pin_memory=True)
    val_loader = DataLoader(Patches(512, 1), batch_size=args.batch_size, shuffle=False,
                            num_workers=args.workers, pin_memory=True)

    if args.evaluate:
        validate(val_loader, model, criterion, device)
        return

    for epoch in range(start_epoch, args.epochs):
        train(train_loader, model, criterion, optimizer, epoch, device, args)
        acc1 = validate(val_loader, model, criterion, device)
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        save_checkpoint({
            'epoch': epoch + 1,
            'state_dict': model.state_dict(),
            'best_acc1': best_acc1,
            'optimizer': optimizer.state_dict(),
        }, is_best)


if __name__ == '__main__':
    main()
