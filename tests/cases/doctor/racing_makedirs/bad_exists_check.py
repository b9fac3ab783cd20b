import argparse
import os

import torch
import torch.nn as nn
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, models, transforms


def parse():
    p = argparse.ArgumentParser()
    p.add_argument('data_dir')
    p.add_argument('--save-dir', default='checkpoints/effnet')
    p.add_argument('--epochs', default=35, type=int)
    p.add_argument('--batch', default=64, type=int)
    return p.parse_args()


def main():
    args = parse()
    local_rank = int(os.environ['LOCAL_RANK'])
    torch.cuda.set_device(local_rank)
    dist.init_process_group('nccl')
    rank = dist.get_rank()

    if not os.path.exists(args.save_dir):
        os.makedirs(args.save_dir)  # LS35

    ds = datasets.ImageFolder(args.data_dir, transforms.Compose([
        transforms.RandomResizedCrop(224), transforms.ToTensor()]))
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, args.batch, sampler=sampler, num_workers=8, pin_memory=True)
    model = models.efficientnet_b0(num_classes=len(ds.classes)).cuda(local_rank)
    model = nn.parallel.DistributedDataParallel(model, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    criterion = nn.CrossEntropyLoss().cuda(local_rank)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for images, target in loader:
            images = images.cuda(local_rank, non_blocking=True)
            target = target.cuda(local_rank, non_blocking=True)
            loss = criterion(model(images), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            torch.save({'epoch': epoch, 'model': model.module.state_dict()},
                       os.path.join(args.save_dir, 'latest.pth'))
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
