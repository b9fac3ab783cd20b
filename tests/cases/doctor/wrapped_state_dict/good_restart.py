"""A helper loads each state into what it belongs to, the wrapper among them."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

PATH = "restart.pt"


def restart(path, **objects):
    if not os.path.isfile(path):
        return 0
    saved = torch.load(path, map_location="cpu")
    for key, value in objects.items():
        value.load_state_dict(saved[key])
    return saved["epoch"]


def main():
    dist.init_process_group("nccl")
    gpu = int(os.environ["LOCAL_RANK"])
    model = DDP(nn.Linear(16, 4).cuda(gpu), device_ids=[gpu])
    data = TensorDataset(torch.randn(640, 16), torch.randint(4, (640,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler, num_workers=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * dist.get_world_size())
    start = restart(PATH, model=model, optimizer=optimizer)
    for epoch in range(start, 10):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.cuda(gpu)), y.cuda(gpu)).backward()
            optimizer.step()
        if dist.get_rank() == 0:
            state = {"epoch": epoch + 1, "model": model.state_dict()}
            state["optimizer"] = optimizer.state_dict()
            torch.save(state, PATH)


if __name__ == "__main__":
    main()
