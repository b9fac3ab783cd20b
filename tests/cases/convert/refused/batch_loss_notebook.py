# refused: batch_loss
# Exported from a notebook.

# In[1]:

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
from pytorch_metric_learning import losses, miners

# In[2]:

x, y = torch.randn(5000, 20), torch.randint(0, 10, (5000,))
train_dl = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
net = nn.Linear(20, 8)
opt = torch.optim.Adam(net.parameters())
loss_func = losses.TripletMarginLoss(margin=0.1)

# In[3]:

for epoch in range(5):
    for xb, yb in train_dl:
        opt.zero_grad()
        loss = loss_func(net(xb), yb)
        loss.backward()
        opt.step()
    print(loss)
