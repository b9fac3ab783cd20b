"""First a base is trained, then it is frozen but for its last layer, and a new head learns faster than the rest."""
import argparse
import math
import sys

import torch
import torch.nn as nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument('--pretrain_epochs', type=int, default=8)
    parser.add_argument('--epochs', type=int, default=4)
    parser.add_argument('--batch_size', type=int, default=16)
    parser.add_argument('--head_lr', type=float, default=1e-2)
    parser.add_argument('--base_lr', type=float, default=1e-3)
    parser.add_argument('--warmup_ratio', type=float, default=0.1)
    parser.add_argument('--weight_decay', type=float, default=0.01)
    parser.add_argument('--seed', type=int, default=13)
    return parser.parse_args()


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Linear(24, 48)
        self.layer2 = nn.Linear(48, 48)
        self.layer3 = nn.Linear(48, 48)

    def forward(self, x):
        for layer in (self.layer1, self.layer2, self.layer3):
            x = torch.relu(layer(x))
        return x


class Classifier(nn.Module):
    def __init__(self, base, classes):
        super().__init__()
        self.base = base
        self.head = nn.Linear(48, classes)

    def forward(self, x):
        return self.head(self.base(x))


def task(count, classes, seed):
    g = torch.Generator().manual_seed(seed)
    hidden = torch.randn(24, 6, generator=torch.Generator().manual_seed(100))
    target = torch.randn(6, classes, generator=torch.Generator().manual_seed(classes))
    x = torch.randn(count, 24, generator=g)
    return TensorDataset(x, (torch.tanh(x @ hidden / 2) @ target).argmax(1))


def get_linear_warmup(optimizer, warmup_steps, total_steps):
    def lr_lambda(current_step):
        if current_step < warmup_steps:
            return float(current_step + 1) / float(max(1, warmup_steps))
        progress = (current_step - warmup_steps) / max(1, total_steps - warmup_steps)
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * progress)))
    return LambdaLR(optimizer, lr_lambda)


def evaluate(model, loader, device):
    model.eval()
    right = sum((model(x.to(device)).argmax(1).cpu() == y).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

    # ---- the base ----
    base = Base()
    first = Classifier(base, 8).to(device)
    loader = DataLoader(task(2048, 8, 1), batch_size=args.batch_size, shuffle=True)
    optimizer = AdamW(first.parameters(), lr=3e-3)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(args.pretrain_epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_fn(first(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
        print('base, epoch %d: loss %.4f' % (epoch, loss.item()), file=sys.stderr)
    torch.save(base.state_dict(), 'base.pt')

    # ---- the new task ----
    base = Base()
    base.load_state_dict(torch.load('base.pt'))
    model = Classifier(base, 3).to(device)
    for name, p in model.base.named_parameters():
        p.requires_grad = name.startswith('layer3')
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print('trainable parameters: {:,} of {:,}'.format(trainable, sum(p.numel() for p in model.parameters())))

    optimizer = AdamW([
        {'params': [p for p in model.base.parameters() if p.requires_grad], 'lr': args.base_lr},
        {'params': model.head.parameters(), 'lr': args.head_lr, 'weight_decay': 0.0},
    ], weight_decay=args.weight_decay)

    train_loader = DataLoader(task(256, 3, 2), batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(task(256, 3, 3), batch_size=64)
    total_steps = len(train_loader) * args.epochs
    scheduler = get_linear_warmup(optimizer, int(args.warmup_ratio * total_steps), total_steps)

    for epoch in range(args.epochs):
        for x, y in train_loader:
            loss = loss_fn(model(x.to(device)), y.to(device))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(filter(lambda p: p.requires_grad, model.parameters()), 1.0)
            optimizer.step()
            scheduler.step()
            model.zero_grad()
        lrs = ', '.join(f'{lr:.5f}' for lr in scheduler.get_last_lr())
        print(f'epoch {epoch}: loss {loss.item():.4f}, accuracy {evaluate(model, val_loader, device):.4f}, rates {lrs}')

    torch.save(model.state_dict(), 'finetuned.pt')


if __name__ == '__main__':
    main()
