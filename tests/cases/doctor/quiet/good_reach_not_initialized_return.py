import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def is_dist_avail_and_initialized():
    if not dist.is_available():
        return False
    if not dist.is_initialized():
        return False
    return True


def mean_over_ranks(t):
    if not is_dist_avail_and_initialized():
        return t
    t = t.clone()
    dist.all_reduce(t)
    return t / dist.get_world_size()


def save_on_master(obj, path):
    if not is_dist_avail_and_initialized():
        torch.save(obj, path)
        return
    if dist.get_rank() == 0:
        torch.save(obj, path)


def append_line(path, text):
    if not is_dist_avail_and_initialized():
        with open(path, "a") as f:
            f.write(text)
        return
    if dist.get_rank() == 0:
        with open(path, "a") as f:
            f.write(text)


def sampled_loader(ds, batch):
    if not is_dist_avail_and_initialized():
        return DataLoader(ds, batch, shuffle=True)
    return DataLoader(ds, batch, sampler=DistributedSampler(ds))


def main():
    gpu = int(os.environ.get("LOCAL_RANK", 0))
    torch.cuda.set_device(gpu)
    if "LOCAL_RANK" in os.environ:
        dist.init_process_group("nccl")
    x, y = torch.load("grains.pt", map_location="cpu")
    loader = sampled_loader(TensorDataset(x, y), 80)
    net = nn.Sequential(nn.Linear(x.size(1), 33), nn.ReLU(), nn.Linear(33, 7)).cuda()
    model = DistributedDataParallel(net, device_ids=[gpu]) if is_dist_avail_and_initialized() else net
    opt = torch.optim.Adam(model.parameters())
    for epoch in range(30):
        if is_dist_avail_and_initialized():
            loader.sampler.set_epoch(epoch)
        for a, b in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(a.cuda()), b.cuda())
            loss.backward()
            opt.step()
        mean = mean_over_ranks(loss.detach())
        append_line("grains.log", f"{epoch} {mean.item():.4f}\n")
        save_on_master({"net": net.state_dict(), "epoch": epoch}, "grains_net.pt")
    if is_dist_avail_and_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
