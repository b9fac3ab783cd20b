"""Data sets and loaders."""

import torch
import utils
from torchvision.datasets import CIFAR10
from torchvision.transforms import ToTensor


def get_loaders(args):
    train_set = CIFAR10(args.data_path, train=True, transform=ToTensor())
    test_set = CIFAR10(args.data_path, train=False, transform=ToTensor())
    if args.distributed:
        train_sampler = torch.utils.data.distributed.DistributedSampler(train_set)
        part = range(utils.get_rank(), len(test_set), utils.get_world_size())
        test_set = torch.utils.data.Subset(test_set, part)
    else:
        train_sampler = torch.utils.data.RandomSampler(train_set)
    train_loader = torch.utils.data.DataLoader(
        train_set,
        batch_size=args.batch_size,
        sampler=train_sampler,
        num_workers=args.workers,
        pin_memory=True,
    )
    test_loader = torch.utils.data.DataLoader(
        test_set, batch_size=args.batch_size, num_workers=args.workers, pin_memory=True
    )
    return train_loader, test_loader
