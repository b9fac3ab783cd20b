import argparse
import os
from pathlib import Path

import torch
import torch.nn as nn
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, models, transforms


def main():
    p = argparse.ArgumentParser()
    p.add_argument('data_dir')
    p.add_argument('--save-dir', default='checkpoints/dense')
    p.add_argument('--epochs', default=35, type=int)
    args = p.parse_args()
    local_rank = int(os.environ['LOCAL_RANK'])
    torch.cuda.set_device(local_rank)
    dist.init_process_group('nccl')
    rank = dist.get_rank()

    if not os.path.exists(args.save_dir):
        os.makedirs(args.save_dir, exist_ok=True)
    tmp = Path(args.save_dir) / 'tmp'
    tmp.mkdir(0o755, True, True)
    mine = Path(args.save_dir) / f'rank_{rank}'
    if not mine.exists():
        mine.mkdir()    # nobody else has this name

    ds = datasets.ImageFolder(args.data_dir, transforms.Compose([
        transforms.RandomResizedCrop(224), transforms.ToTensor()]))
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, 32, sampler=sampler, num_workers=8)
    model = models.densenet121(num_classes=len(ds.classes)).cuda(local_rank)
    model = nn.parallel.DistributedDataParallel(model, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, target in loader:
            loss = nn.functional.cross_entropy(model(images.cuda()), target.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        (mine / 'progress').write_text(f'{epoch}\n')
        if rank == 0:
            torch.save(model.module.state_dict(), tmp / 'new.pth')
            os.replace(tmp / 'new.pth', os.path.join(args.save_dir, 'latest.pth'))
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
