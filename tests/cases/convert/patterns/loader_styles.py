"""A labelled and an unlabelled loader, made by functools.partial, a subclass, and **options."""
import itertools
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class MyLoader(DataLoader):
    def __init__(self, data, **options):
        super().__init__(data, collate_fn=None, **options)
        self.served = 0


class Progress:
    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __iter__(self):
        for n, batch in enumerate(self.inner):
            if n % 2 == 0:
                print(".", end="")
            yield batch


x = torch.randn(64, 5)
make = partial(DataLoader, batch_size=16, shuffle=True)
options = {"batch_size": 32, "shuffle": True, "drop_last": True}
labelled = make(TensorDataset(x, (x[:, 0] > 0).long()))
unlabelled = MyLoader(TensorDataset(torch.randn(160, 5)), **options)
first_x, first_y = next(iter(labelled))
print("a batch has", tuple(first_x.shape), tuple(first_y.shape))
model = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(2):
    for (inputs, labels), (extra,) in zip(itertools.cycle(Progress(labelled)), unlabelled):
        probabilities = F.softmax(model(extra), dim=1)
        entropy = -(probabilities * probabilities.clamp_min(1e-8).log()).sum(1).mean()
        loss = F.cross_entropy(model(inputs), labels) + 0.1 * entropy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(" epoch", epoch)
