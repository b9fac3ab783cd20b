import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_loader(setup):
    ds = TensorDataset(*torch.load(setup["inputs"], map_location="cpu"))
    sampler = DistributedSampler(ds)
    return DataLoader(ds, setup["batch"], sampler=sampler), sampler


def make_net(gpu):
    net = nn.Sequential(nn.Linear(40, 80), nn.PReLU(), nn.Linear(80, 1)).to(gpu)
    return nn.parallel.DistributedDataParallel(net, device_ids=[gpu])
