import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def convnet(classes):
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2), nn.BatchNorm2d(32), nn.SiLU(),
        nn.Conv2d(32, 64, 3, stride=2), nn.BatchNorm2d(64), nn.SiLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes),
    )


def fit(cfg, ds, classes, local_rank):
    sampler = DistributedSampler(ds, shuffle=True)
    loader = DataLoader(ds, batch_size=cfg["batch_per_gpu"], sampler=sampler, num_workers=4)
    model = DDP(convnet(classes).to(local_rank), device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), **cfg["optim"])
    for epoch in range(cfg["epochs"]):
        sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.to(local_rank), y.to(local_rank)
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), cfg["save_to"])
