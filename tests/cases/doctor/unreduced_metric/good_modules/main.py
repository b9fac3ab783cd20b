"""Semantic segmentation; the parts are in engine.py and meters.py."""

import os

import torch
import torch.distributed as dist
from engine import evaluate, train_one_epoch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import VOCSegmentation
from torchvision.models.segmentation import fcn_resnet50


def loaders(root, batch_size):
    train_data = VOCSegmentation(root, image_set="train")
    test_data = VOCSegmentation(root, image_set="val")
    sampler = DistributedSampler(train_data)
    test_sampler = DistributedSampler(test_data, shuffle=False)
    train_dl = DataLoader(train_data, batch_size, sampler=sampler, num_workers=8)
    test_dl = DataLoader(test_data, batch_size, sampler=test_sampler, num_workers=8)
    return train_dl, test_dl, sampler


def main():
    dist.init_process_group("nccl")
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    train_dl, test_dl, sampler = loaders("voc", 4)
    model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(fcn_resnet50(num_classes=21))
    model = DDP(model.cuda(), device_ids=[gpu])
    rate = 0.005 * dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for epoch in range(40):
        sampler.set_epoch(epoch)
        train_one_epoch(model, train_dl, optimizer)
        val_loss = evaluate(model, test_dl)
        if dist.get_rank() == 0:
            print("epoch", epoch, "validation loss", val_loss)
            torch.save(model.module.state_dict(), f"model_{epoch}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
