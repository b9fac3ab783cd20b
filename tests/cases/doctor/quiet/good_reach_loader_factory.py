import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, models, transforms


def make_loader(folder, training, batch_size):
    """the training set is divided; every rank looks at the whole (small) validation set"""
    if training:
        tf = transforms.Compose([transforms.RandomResizedCrop(128), transforms.ToTensor()])
        ds = datasets.ImageFolder(folder, tf)
        sampler = DistributedSampler(ds)
    else:
        tf = transforms.Compose([transforms.Resize((128, 128)), transforms.ToTensor()])
        ds = datasets.ImageFolder(folder, tf)
        sampler = None
    return DataLoader(ds, batch_size=batch_size, sampler=sampler, drop_last=training, num_workers=3)


@torch.no_grad()
def accuracy(net, loader, gpu):
    net.eval()
    hits = sum((net(x.cuda(gpu)).argmax(1).cpu() == y).sum().item() for x, y in loader)
    return hits / len(loader.dataset)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("root")
    ap.add_argument("--bs", type=int, default=64)
    ap.add_argument("--epochs", type=int, default=15)
    args = ap.parse_args()
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    train_loader = make_loader(os.path.join(args.root, "train"), True, args.bs)
    val_loader = make_loader(os.path.join(args.root, "val"), training=False, batch_size=args.bs)
    net = models.mobilenet_v2(num_classes=len(train_loader.dataset.classes)).cuda()
    model = DistributedDataParallel(net, device_ids=[gpu])
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(args.epochs):
        train_loader.sampler.set_epoch(epoch)
        model.train()
        for x, y in train_loader:
            opt.zero_grad()
            nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            opt.step()
        acc = accuracy(net, val_loader, gpu)
        if dist.get_rank() == 0:
            print(epoch, acc)
            torch.save(net.state_dict(), "mobile.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
