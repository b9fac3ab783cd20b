# refused: full_graph
"""Node classification on one graph: python train.py --hidden 16."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class GraphConvolution(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * 0.1)

    def forward(self, x, adj):
        return torch.spmm(adj, x @ self.weight)


class GCN(nn.Module):
    def __init__(self, inputs, hidden, classes, dropout):
        super().__init__()
        self.first = GraphConvolution(inputs, hidden)
        self.second = GraphConvolution(hidden, classes)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.dropout(F.relu(self.first(x, adj)), self.dropout, training=self.training)
        return F.log_softmax(self.second(x, adj), dim=1)


def load_data(path):
    raw = np.load(path)
    adj = torch.from_numpy(raw["adj"]).float().to_sparse()
    return adj, torch.from_numpy(raw["features"]), torch.from_numpy(raw["labels"]), torch.arange(140)


def train(epoch, model, optimizer, features, adj, labels, idx_train):
    model.train()
    optimizer.zero_grad()
    output = model(features, adj)
    loss = F.nll_loss(output[idx_train], labels[idx_train])
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--hidden", type=int, default=16)
    args = parser.parse_args()
    adj, features, labels, idx_train = load_data("cora.npz")
    model = GCN(features.shape[1], args.hidden, 7, 0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    if torch.cuda.is_available():
        model.cuda()
        features, adj, labels = features.cuda(), adj.cuda(), labels.cuda()
    for epoch in range(args.epochs):
        train(epoch, model, optimizer, features, adj, labels, idx_train)


if __name__ == "__main__":
    main()
