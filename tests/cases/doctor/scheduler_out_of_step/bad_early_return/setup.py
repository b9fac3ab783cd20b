import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import MultiStepLR
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def everything(gpu):
    blob = torch.load("spectra.pt", map_location="cpu")
    ds = TensorDataset(blob["spectrum"], blob["kind"])
    loader = DataLoader(ds, batch_size=128, sampler=DistributedSampler(ds))
    net = nn.Sequential(nn.Unflatten(1, (1, -1)), nn.Conv1d(1, 16, 11, stride=5), nn.ReLU(), nn.Flatten(),
                        nn.LazyLinear(blob["kinds"]))
    net(blob["spectrum"][:2])
    model = DistributedDataParallel(net.to(gpu), device_ids=[gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    return loader, model, optimizer, MultiStepLR(optimizer, milestones=[8, 12])
