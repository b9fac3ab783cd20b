import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def loaders(path, batch):
    blob = torch.load(path, map_location="cpu")
    train = TensorDataset(blob["train_ids"], blob["train_tags"])
    test = TensorDataset(blob["test_ids"], blob["test_tags"])
    a = DataLoader(train, batch_size=batch, sampler=DistributedSampler(train), drop_last=True)
    b = DataLoader(test, batch_size=batch, sampler=DistributedSampler(test, shuffle=False))
    return a, b, blob["vocab"]
