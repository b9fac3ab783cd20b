import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

NUM_CLASSES = 3
NAMES = ('ground', 'disc', 'bar')


class Shapes(Dataset):
    """A disc and a bar on noisy ground, with the class of each pixel."""
    def __init__(self, length, offset):
        self.length = length
        self.offset = offset

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(self.offset + index)
        r, c, radius, row, blank = torch.rand(5, generator=g).tolist()
        yy, xx = torch.meshgrid(torch.arange(24.), torch.arange(24.), indexing='ij')
        mask = torch.zeros(24, 24, dtype=torch.long)
        top = int(row * 20)
        mask[top:top + 3] = 2
        mask[(yy - 4 - 16 * r) ** 2 + (xx - 4 - 16 * c) ** 2 < (2 + 3 * radius) ** 2] = 1
        image = torch.stack([(mask == 1).float(), (mask == 2).float()]) + 0.7 * torch.randn(2, 24, 24, generator=g)
        mask[:int(20 * blank)] = 255    # nobody labelled the upper part
        return image, mask


class MiniUNet(nn.Module):
    def __init__(self, ch=8):
        super().__init__()
        self.down1 = nn.Conv2d(2, ch, 3, padding=1)
        self.down2 = nn.Conv2d(ch, 2 * ch, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * ch, ch, 2, stride=2)
        self.head = nn.Conv2d(2 * ch, NUM_CLASSES, 3, padding=1)

    def forward(self, x):
        a = F.relu(self.down1(x))
        b = F.relu(self.down2(F.max_pool2d(a, 2)))
        return self.head(torch.cat([a, F.relu(self.up(b))], dim=1))


def add_to_confusion(confusion, target, pred):
    keep = target != 255
    index = NUM_CLASSES * target[keep] + pred[keep]
    confusion += torch.bincount(index, minlength=NUM_CLASSES ** 2).reshape(NUM_CLASSES, NUM_CLASSES)


def iou(confusion):
    confusion = confusion.double()
    inter = confusion.diag()
    union = confusion.sum(0) + confusion.sum(1) - inter
    return inter / union


def main(args):
    torch.manual_seed(args.seed)
    device = torch.device(args.device)

    train_loader = DataLoader(Shapes(192, 0), batch_size=args.batch, shuffle=True, num_workers=args.workers)
    val_loader = DataLoader(Shapes(64, 10000), batch_size=args.batch, num_workers=args.workers)

    model = MiniUNet()
    model.to(device)

    # rare classes count more; the mean is over the weights of the labelled pixels
    weight = torch.tensor([0.4, 2.0, 1.0], device=device)
    criterion = nn.CrossEntropyLoss(weight=weight, ignore_index=255)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    iters = args.epochs * len(train_loader)
    lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda it: (1 - it / iters) ** 0.9)

    best_miou = 0.
    for epoch in range(args.epochs):
        model.train()
        for step, (image, target) in enumerate(train_loader):
            image, target = image.to(device), target.to(device)
            loss = criterion(model(image), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            lr_scheduler.step()
            if step % args.print_freq == 0:
                print("epoch %d  %2d/%d  lr %.4f  loss %.4f" % (
                    epoch, step, len(train_loader), optimizer.param_groups[0]["lr"], loss.item()))

        model.eval()
        confusion = torch.zeros(NUM_CLASSES, NUM_CLASSES, dtype=torch.long, device=device)
        with torch.no_grad():
            for image, target in val_loader:
                image, target = image.to(device), target.to(device)
                pred = model(image).argmax(1)
                add_to_confusion(confusion, target, pred)
        scores = iou(confusion)
        pixel_acc = (confusion.diag().sum() / confusion.sum()).item()
        print('   pixels right: {:.4f}; '.format(pixel_acc)
              + ', '.join('{} {:.3f}'.format(n, s) for n, s in zip(NAMES, scores)))
        miou = scores.mean().item()
        if miou > best_miou:
            best_miou = miou
            torch.save({'model': model.state_dict(), 'miou': miou, 'args': vars(args)}, args.output)
    print('best mean IoU %.4f' % best_miou)


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('--epochs', default=3, type=int)
    p.add_argument('--batch', default=8, type=int)
    p.add_argument('--lr', default=0.1, type=float)
    p.add_argument('--seed', default=12, type=int)
    p.add_argument('--workers', default=0, type=int)
    p.add_argument('--print-freq', default=8, type=int)
    p.add_argument('--output', default='segmentation.pth')
    p.add_argument('--device', default='cuda' if torch.cuda.is_available() else 'cpu')
    main(p.parse_args())
