import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, models, transforms


def correct(net, loader, gpu):
    net.eval()
    n = 0
    with torch.no_grad():
        for x, y in loader:
            n += (net(x.cuda(gpu)).argmax(1).cpu() == y).sum().item()
    return n / len(loader.dataset)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("train")
    ap.add_argument("val")
    ap.add_argument("--epochs", type=int, default=40)
    ap.add_argument("--best", default="best.pt")
    args = ap.parse_args()
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    tf = transforms.Compose([transforms.Resize((160, 160)), transforms.ToTensor()])
    train_ds, val_ds = datasets.ImageFolder(args.train, tf), datasets.ImageFolder(args.val, tf)
    sampler = DistributedSampler(train_ds)
    loader = DataLoader(train_ds, 64, sampler=sampler, num_workers=4)
    model = DDP(models.shufflenet_v2_x1_0(num_classes=len(train_ds.classes)).cuda(gpu), device_ids=[gpu])
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    best_acc = 0.0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            opt.zero_grad()
            nn.functional.cross_entropy(model(x.cuda(gpu)), y.cuda(gpu)).backward()
            opt.step()
        improved = False
        if rank == 0:
            acc = correct(model.module, DataLoader(val_ds, 64), gpu)
            improved = acc > best_acc
            best_acc = max(acc, best_acc)
            print(f"{epoch}: {acc:.4f} (best {best_acc:.4f})")
        if improved:
            if rank == 0:
                torch.save(model.module.state_dict(), args.best)
            dist.barrier()  # LS29
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
