# uneven: 60000 training images are no multiple of the batch of 64
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torchvision import datasets, transforms


class DigitNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 5, stride=2)
        self.body = nn.Conv2d(8, 16, 3)
        self.hidden = nn.Linear(16 * 5 * 5, 48)
        self.head = nn.Linear(48, 10)

    def forward(self, x):
        x = F.relu(self.stem(x))
        x = F.max_pool2d(F.relu(self.body(x)), 2)
        x = x.flatten(1)
        x = F.relu(self.hidden(x))
        return F.log_softmax(self.head(x), dim=1)


def train(args, model, device, loader, optimizer, epoch):
    model.train()
    for i, (images, labels) in enumerate(loader):
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(images), labels)
        loss.backward()
        optimizer.step()
        if i % args.log_every == 0:
            print('epoch {:2d}  {:6d}/{:d} images ({:3.0f}%)  loss {:.4f}'.format(
                epoch, i * len(images), len(loader.dataset),
                100. * i / len(loader), loss.item()))
            if args.smoke_test:
                break


def test(model, device, loader):
    model.eval()
    total, hits = 0, 0
    with torch.no_grad():
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            scores = model(images)
            total += F.nll_loss(scores, labels, reduction='sum').item()  # add up over the batch
            guess = scores.argmax(dim=1, keepdim=True)
            hits += guess.eq(labels.view_as(guess)).sum().item()

    total /= len(loader.dataset)

    print('\n   held out: mean loss {:.4f}, {}/{} right ({:.1f}%)\n'.format(
        total, hits, len(loader.dataset), 100. * hits / len(loader.dataset)))


def main():
    parser = argparse.ArgumentParser(description='handwritten digits')
    parser.add_argument('--batch-size', type=int, default=64, metavar='N')
    parser.add_argument('--test-batch-size', type=int, default=1000, metavar='N')
    parser.add_argument('--epochs', type=int, default=3, metavar='N')
    parser.add_argument('--lr', type=float, default=0.2)
    parser.add_argument('--gamma', type=float, default=0.6, help='decay of the rate per epoch')
    parser.add_argument('--no-cuda', action='store_true', default=False)
    parser.add_argument('--smoke-test', action='store_true', default=False,
                        help='one batch per epoch')
    parser.add_argument('--seed', type=int, default=3)
    parser.add_argument('--log-every', type=int, default=10)
    parser.add_argument('--save-model', action='store_true', default=False)
    args = parser.parse_args()
    use_cuda = not args.no_cuda and torch.cuda.is_available()

    torch.manual_seed(args.seed)

    device = torch.device("cuda" if use_cuda else "cpu")

    train_kwargs = {'batch_size': args.batch_size, 'shuffle': True}
    test_kwargs = {'batch_size': args.test_batch_size}
    if use_cuda:
        for_gpu = {'num_workers': 2, 'pin_memory': True}
        train_kwargs.update(for_gpu)
        test_kwargs.update(for_gpu)

    to_input = transforms.Compose([
        transforms.ToTensor(),
        transforms.Normalize((0.13,), (0.31,)),
    ])
    train_set = datasets.MNIST('data', train=True, download=True, transform=to_input)
    test_set = datasets.MNIST('data', train=False, transform=to_input)
    train_loader = torch.utils.data.DataLoader(train_set, **train_kwargs)
    test_loader = torch.utils.data.DataLoader(test_set, **test_kwargs)

    model = DigitNet().to(device)
    optimizer = optim.SGD(model.parameters(), lr=args.lr)

    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()

    if args.save_model:
        torch.save(model.state_dict(), "digits.pt")


if __name__ == '__main__':
    main()
