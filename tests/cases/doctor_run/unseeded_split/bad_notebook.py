# Exported from a notebook.

# In[1]:

import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, random_split

# In[2]:


class Names(Dataset):
    """Files of letters, and whether a name is long."""

    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        name = self.names[index]
        letters = torch.zeros(26)
        for letter in name:
            letters[ord(letter) - 97] += 1
        return letters, float(len(name) > 4)


# In[3]:

dist.init_process_group("gloo")
names = [f"{a}{b}{'cd' * (ord(a) % 3)}" for a in "abcdefghij" for b in "klmnopqr"]
train_set, held_out = random_split(Names(names), [64, 16])
train_loader = DataLoader(train_set, 8, sampler=DistributedSampler(train_set))  # LS04
random.shuffle(names)
tuning_set = Names(names)
tuning_loader = DataLoader(tuning_set, 8, sampler=DistributedSampler(tuning_set))  # LS04

# In[4]:

model = DistributedDataParallel(torch.nn.Linear(26, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for loader in (train_loader, tuning_loader):
    for letters, long in loader:
        loss = F.binary_cross_entropy_with_logits(model(letters).squeeze(1), long.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

# In[5]:

if dist.get_rank() == 0:
    print("loss", loss.item())
