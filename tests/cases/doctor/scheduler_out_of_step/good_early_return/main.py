import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import MultiStepLR
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from closing import end_epoch


def main():
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    blob = torch.load("spectra.pt", map_location="cpu")
    ds = TensorDataset(blob["spectrum"], blob["kind"])
    loader = DataLoader(ds, batch_size=128, sampler=DistributedSampler(ds))
    net = nn.Sequential(nn.Linear(blob["spectrum"].shape[1], 90), nn.ReLU(), nn.Linear(90, blob["kinds"]))
    model = DistributedDataParallel(net.to(gpu), device_ids=[gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    scheduler = MultiStepLR(optimizer, milestones=[8, 12])
    for epoch in range(16):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.to(gpu)), y.to(gpu))
            loss.backward()
            optimizer.step()
        end_epoch(epoch, model, scheduler)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
