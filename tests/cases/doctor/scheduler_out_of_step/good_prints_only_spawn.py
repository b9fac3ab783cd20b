import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, Resize, ToTensor


def network(classes):
    return nn.Sequential(nn.Conv2d(3, 32, 5, stride=3), nn.ReLU(), nn.Conv2d(32, 64, 5, stride=3), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, classes))


def main_worker(rank, world_size, folder, epochs):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:28766", rank=rank, world_size=world_size)
    ds = ImageFolder(folder, Compose([Resize((96, 96)), ToTensor()]))
    sampler = DistributedSampler(ds, num_replicas=world_size, rank=rank)
    loader = DataLoader(ds, batch_size=80, sampler=sampler, num_workers=3)
    model = DDP(network(len(ds.classes)).to(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    lr_decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)

    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        step = 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.to(rank)), y.to(rank))
            loss.backward()
            optimizer.step()
            step += 1
            if rank == 0 and step % 100 == 0:
                print("epoch", epoch, "step", step, "loss", loss.item(), "rate", lr_decay.get_last_lr())
        if rank == 0:
            torch.save({"model": model.module.state_dict(), "lr_decay": lr_decay.state_dict(),
                        "optimizer": optimizer.state_dict(), "step": step}, f"cnn_{epoch}.pt")
        lr_decay.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    n = torch.cuda.device_count()
    mp.spawn(main_worker, args=(n, "/data/signs", 30), nprocs=n)
