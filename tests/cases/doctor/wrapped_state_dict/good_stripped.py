"""The keys lose their prefix when the file is loaded."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def load_weights(model, path):
    state = torch.load(path, map_location="cpu")
    model.load_state_dict({key.replace("module.", "", 1): value for key, value in state.items()})


def main():
    dist.init_process_group("nccl")
    gpu = int(os.environ["LOCAL_RANK"])
    model = nn.Linear(16, 4).cuda(gpu)
    if os.path.exists("weights.pt"):
        load_weights(model, "weights.pt")
    model = DDP(model, device_ids=[gpu])
    data = TensorDataset(torch.randn(640, 16), torch.randint(4, (640,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler, num_workers=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * dist.get_world_size())
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.cuda(gpu)), y.cuda(gpu)).backward()
            optimizer.step()
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "weights.pt")


if __name__ == "__main__":
    main()
