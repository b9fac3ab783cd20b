"""The module that it imports can save, but nobody asks it to here."""

import os

import torch
import torch.distributed as dist
from helpers import count
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
net = DDP(nn.Linear(784, 10).to(device), device_ids=[device.index])
print(count(net))
