import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def get_rank():
    if not dist.is_available() or not dist.is_initialized():
        return 0
    return dist.get_rank()


class Checkpointer:
    def __init__(self, model, optimizer, save_dir, save_to_disk=None):
        self.model, self.optimizer, self.save_dir = model, optimizer, save_dir
        if save_to_disk is None:
            save_to_disk = get_rank() == 0
        self.save_to_disk = save_to_disk

    def save(self, name, **extra):
        if not self.save_to_disk:
            return
        os.makedirs(self.save_dir, exist_ok=True)
        path = os.path.join(self.save_dir, f"{name}.pth")
        torch.save({"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict(), **extra}, path)
        with open(os.path.join(self.save_dir, "last_checkpoint"), "w") as f:
            f.write(path)

    def load(self):
        marker = os.path.join(self.save_dir, "last_checkpoint")
        if not os.path.exists(marker):
            return 0
        with open(marker) as f:
            data = torch.load(f.read(), map_location="cpu")
        self.model.module.load_state_dict(data["model"])
        self.optimizer.load_state_dict(data["optimizer"])
        return data["epoch"] + 1


def main():
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    x, y = torch.load("roads.pt", map_location="cpu")
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, 12, sampler=sampler)
    net = nn.Sequential(nn.Conv2d(3, 20, 3, padding=1), nn.ReLU(), nn.Conv2d(20, 2, 1)).cuda()
    model = DistributedDataParallel(net, device_ids=[gpu])
    optimizer = torch.optim.Adam(model.parameters())
    checkpointer = Checkpointer(model, optimizer, "roads_out")
    first = checkpointer.load()
    dist.barrier()
    for epoch in range(first, 40):
        sampler.set_epoch(epoch)
        for a, b in loader:
            loss = nn.functional.cross_entropy(model(a.cuda()), b.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        checkpointer.save(f"epoch_{epoch:03d}", epoch=epoch)
    checkpointer.save("final", epoch=39)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
