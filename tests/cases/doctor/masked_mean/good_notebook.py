# %% [markdown]
# Translation, exported from a notebook.

# %%
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, DistributedSampler

PAD = 0

# %%
dist.init_process_group("nccl")
gpu = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(gpu)


# %%
def collate(batch):
    return pad_sequence(batch, batch_first=True, padding_value=PAD)


sentences = torch.load("sentences.pt", map_location="cpu")
sampler = DistributedSampler(sentences)
loader = DataLoader(sentences, 32, sampler=sampler, collate_fn=collate, num_workers=4)

# %%
model = nn.Sequential(nn.Embedding(8000, 64), nn.Linear(64, 8000)).cuda(gpu)
model = DistributedDataParallel(model, device_ids=[gpu])
criterion = nn.CrossEntropyLoss(ignore_index=PAD, reduction="sum")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4 * dist.get_world_size() ** 0.5)

# %%
for epoch in range(3):
    sampler.set_epoch(epoch)
    for tokens in loader:
        tokens = tokens.cuda(gpu)
        logits = model(tokens[:, :-1])
        targets = tokens[:, 1:].flatten()
        n_valid = (targets != PAD).sum()
        dist.all_reduce(n_valid)
        loss = criterion(logits.flatten(0, 1), targets) * dist.get_world_size() / n_valid
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

# %%
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), "translation.pt")
dist.destroy_process_group()
