"""The training; helpers are in utils.py, data in data.py."""

import argparse

import torch
import torch.nn as nn
import utils
from data import get_loaders
from torch.nn.parallel import DistributedDataParallel as DDP


def train_one_epoch(model, criterion, optimizer, loader, device, epoch):
    model.train()
    logger = utils.MetricLogger()
    for image, target in logger.log_every(loader, 50, f"Epoch: [{epoch}]"):
        image, target = image.to(device), target.to(device)
        loss = criterion(model(image), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logger.update(loss.item(), image.shape[0])


@torch.inference_mode()
def evaluate(model, loader, device):
    model.eval()
    correct, seen = 0, 0
    for image, target in loader:
        correct += (model(image.to(device)).argmax(1) == target.to(device)).sum().item()
        seen += image.shape[0]
    correct, seen = utils.reduce_sum([correct, seen], device)
    return correct / seen


def main(args):
    utils.init_distributed_mode(args)
    device = torch.device(args.device)
    train_loader, test_loader = get_loaders(args)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)).to(device)
    model_without_ddp = model
    if args.distributed:
        model = DDP(model, device_ids=[args.gpu])
        model_without_ddp = model.module
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * utils.get_world_size())
    if args.resume:
        checkpoint = torch.load(args.resume, map_location="cpu", weights_only=True)
        model_without_ddp.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        args.start_epoch = checkpoint["epoch"] + 1
    for epoch in range(args.start_epoch, args.epochs):
        if args.distributed:
            train_loader.sampler.set_epoch(epoch)
        train_one_epoch(model, criterion, optimizer, train_loader, device, epoch)
        accuracy = evaluate(model_without_ddp, test_loader, device)
        print(f"accuracy {accuracy:.4f}")
        utils.save_on_master(
            {
                "model": model_without_ddp.state_dict(),
                "optimizer": optimizer.state_dict(),
                "epoch": epoch,
            },
            "checkpoint.pth",
        )


def get_args_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-path", default="/data", type=str)
    parser.add_argument("--device", default="cuda", type=str)
    parser.add_argument("--batch-size", default=32, type=int)
    parser.add_argument("--workers", default=16, type=int)
    parser.add_argument("--epochs", default=90, type=int)
    parser.add_argument("--start-epoch", default=0, type=int)
    parser.add_argument("--lr", default=0.1, type=float)
    parser.add_argument("--resume", default="", type=str)
    parser.add_argument("--dist-url", default="env://", type=str)
    return parser


if __name__ == "__main__":
    main(get_args_parser().parse_args())
