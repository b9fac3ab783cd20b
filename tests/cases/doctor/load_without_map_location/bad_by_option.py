"""Nobody can see which object loads: its class is looked up by name."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Plain:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def resume(self, path):
        state = torch.load(path)  # LS26 possible
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keeper", default="Plain")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    data = TensorDataset(torch.randn(1000, 784), torch.randint(10, (1000,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 64, sampler=sampler, num_workers=4)
    model = DDP(nn.Linear(784, 10).cuda(local_rank), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    keeper = globals()[args.keeper](model.module, optimizer)
    keeper.resume("last.pt")
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.cuda(local_rank)), y.cuda(local_rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            kept = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(kept, "last.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
