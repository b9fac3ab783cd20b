import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def fit(options, ds):
    gpu = int(os.environ["LOCAL_RANK"])
    sampler = DistributedSampler(ds)
    loader = DataLoader(ds, batch_size=options["batch"], sampler=sampler, num_workers=2)
    net = nn.Sequential(nn.Conv2d(3, 64, 5, stride=2), nn.ReLU(), nn.Conv2d(64, 64, 5, stride=2), nn.ReLU(),
                        nn.Flatten(), nn.LazyLinear(10)).to(gpu)
    with torch.no_grad():
        net(torch.zeros(1, 3, 32, 32, device=gpu))
    model = DDP(net, device_ids=[gpu])
    opt = torch.optim.SGD(model.parameters(), lr=options["lr"], nesterov=True, momentum=0.9)
    for epoch in range(options["epochs"]):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(gpu)), y.to(gpu))
            opt.zero_grad()
            loss.backward()
            opt.step()
    if dist.get_rank() == 0:
        torch.save(net.state_dict(), "svhn_net.pt")
