import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

world_size = int(os.environ.get("WORLD_SIZE", 1))
rank = int(os.environ.get("RANK", 0))
if world_size > 1:
    dist.init_process_group("gloo")

torch.manual_seed(7)
text = torch.randint(0, 20, (500,))
batch_size, length = 8, 6
embed = nn.Embedding(20, 16)
layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
model = nn.Sequential(embed, layer, nn.Linear(16, 20))
if world_size > 1:
    model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def get_batch():
    at = torch.randint(len(text) - length, (batch_size,))
    x = torch.stack([text[i : i + length] for i in at])
    y = torch.stack([text[i + 1 : i + length + 1] for i in at])
    return x, y


for step in range(100):
    x, y = get_batch()
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
