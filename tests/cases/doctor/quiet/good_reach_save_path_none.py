import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def evaluate(model, loader, gpu, save_path=None, verbose=False):
    """save_path is for the command line tool, which has one process"""
    model.eval()
    hits, outputs = torch.zeros(2, device=gpu), []
    with torch.no_grad():
        for x, y in loader:
            out = model(x.to(gpu))
            hits[0] += (out.argmax(1) == y.to(gpu)).sum()
            hits[1] += len(y)
            outputs.append(out.cpu())
    if save_path is not None:
        torch.save(torch.cat(outputs), save_path)
    dist.all_reduce(hits)
    if verbose and save_path:
        with open(save_path + ".txt", "w") as f:
            f.write(str(hits.tolist()))
    return (hits[0] / hits[1]).item()


def train_epoch(model, loader, opt, gpu, snapshot_every=0, snapshot_path="snap.pt"):
    model.train()
    for i, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x.to(gpu)), y.to(gpu))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if snapshot_every and i % snapshot_every == 0:
            torch.save(model.module.state_dict(), snapshot_path)


def main_worker(rank, world_size):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    t = torch.load("letters.pt", map_location="cpu")
    train, val = TensorDataset(*t["train"]), TensorDataset(*t["val"])
    train_dl = DataLoader(train, 64, sampler=DistributedSampler(train, world_size, rank))
    val_dl = DataLoader(val, 64, sampler=DistributedSampler(val, world_size, rank, shuffle=False))
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 26)).to(rank)
    model = nn.parallel.DistributedDataParallel(net, device_ids=[rank])
    opt = torch.optim.Adam(model.parameters())
    for epoch in range(12):
        train_dl.sampler.set_epoch(epoch)
        train_epoch(model, train_dl, opt, rank)
        acc = evaluate(model, val_dl, rank)
        if rank == 0:
            print(epoch, acc)
            torch.save(net.state_dict(), "letters_net.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "24444"
    n = torch.cuda.device_count()
    mp.spawn(main_worker, args=(n,), nprocs=n)
