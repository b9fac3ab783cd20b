"""A detector with a small batch per GPU, so batch norm takes its statistics over all ranks."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.utils.data as data
from torch.nn import SyncBatchNorm
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(True)
        )

    def forward(self, x):
        return self.body(x)


class Segmenter(nn.Module):
    def __init__(self, classes=21):
        super().__init__()
        self.stem = Block(3, 32)
        self.blocks = nn.ModuleList([Block(32, 32) for _ in range(4)])
        self.head = nn.Conv2d(32, classes, 1)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class Scenes(data.Dataset):
    def __init__(self, root, split="train"):
        self.items = sorted(os.listdir(os.path.join(root, split)))
        self.root = os.path.join(root, split)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        item = torch.load(os.path.join(self.root, self.items[i]), map_location="cpu")
        return item["image"], item["mask"]


def is_main():
    return dist.get_rank() == 0


def main():
    dist.init_process_group("nccl")
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    world = dist.get_world_size()

    train_set = Scenes("/data/scenes", split="train")
    sampler = data.distributed.DistributedSampler(train_set)
    batches = data.BatchSampler(sampler, batch_size=2, drop_last=True)
    loader = data.DataLoader(train_set, batch_sampler=batches, num_workers=6, pin_memory=True)

    model = Segmenter()
    model = SyncBatchNorm.convert_sync_batchnorm(model).cuda(gpu)
    model = DistributedDataParallel(model, device_ids=[gpu], gradient_as_bucket_view=True)
    # The rate was tuned for 16 images in a step.
    lr = 0.02 * (2 * world) / 16
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss(ignore_index=255, reduction="sum")

    for epoch in range(40):
        sampler.set_epoch(epoch)
        model.train()
        for image, mask in loader:
            image, mask = image.cuda(gpu), mask.cuda(gpu)
            loss_sum = criterion(model(image), mask)
            valid = (mask != 255).sum()
            dist.all_reduce(valid)
            # DDP takes the mean over ranks: times world, over the pixels of all of them.
            loss = loss_sum * world / valid
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if is_main():
            torch.save(model.module.state_dict(), "segmenter.pth")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
