# refused: batch_loss
"""Batch-hard triplets for retrieval."""

import torch
from torch import nn, optim
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


def pairwise_distances(embeddings):
    dot = torch.matmul(embeddings, embeddings.t())
    square = torch.diag(dot)
    return torch.clamp(square.unsqueeze(0) - 2.0 * dot + square.unsqueeze(1), min=0.0)


def batch_hard(embeddings, labels, margin=0.3):
    distances = pairwise_distances(embeddings)
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    hardest_positive = (distances * same.float()).max(1)[0]
    hardest_negative = (distances + 1e6 * same.float()).min(1)[0]
    return torch.relu(hardest_positive - hardest_negative + margin).mean()


def run(device="cuda"):
    train_set = datasets.ImageFolder("cars/train", transforms.ToTensor())
    loader = DataLoader(train_set, batch_size=128, shuffle=True, num_workers=8)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 128)).to(device)
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(30):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = batch_hard(net(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()


run()
