"""Several models, each with its optimizer, on the same batches; one device, chosen by a flag."""

import argparse
import multiprocessing

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def prepare(path):
    return torch.load(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", type=int, default=0)
    args = parser.parse_args()
    device = torch.device(f"cuda:{args.gpu}" if torch.cuda.is_available() else "cpu")
    with multiprocessing.Pool(4) as pool:
        parts = pool.map(prepare, ["a.pt", "b.pt"])
    data = TensorDataset(torch.cat(parts), torch.zeros(len(parts)))
    loader = DataLoader(data, batch_size=64, shuffle=True)
    members = [nn.Linear(20, 2).to(device) for _ in range(5)]
    optimizers = [torch.optim.Adam(m.parameters()) for m in members]
    for epoch in range(10):
        for x, y in loader:
            x, y = x.to(device), y.long().to(device)
            for member, optimizer in zip(members, optimizers):
                out = member(x)
                loss = F.cross_entropy(out, y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


if __name__ == "__main__":
    main()
