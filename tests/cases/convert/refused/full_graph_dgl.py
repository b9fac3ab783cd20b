# refused: full_graph
import dgl
import torch
import torch.nn as nn
import torch.nn.functional as F
from dgl.nn import SAGEConv


class SAGE(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = nn.ModuleList(SAGEConv(a, b, "mean") for a, b in zip(sizes, sizes[1:]))

    def forward(self, graph, x):
        for layer in self.layers:
            x = layer(graph, x)
        return x


def train(g, features, labels, masks, model):
    train_mask, val_mask = masks
    loss_fcn = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
    epoch = 0
    while epoch < 200:
        model.train()
        logits = model(g, features)
        loss = loss_fcn(logits[train_mask], labels[train_mask])
        loss += 1e-4 * sum(p.pow(2).sum() for p in model.parameters())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        epoch += 1


if __name__ == "__main__":
    data = dgl.data.CoraGraphDataset()
    g = dgl.add_self_loop(data[0]).int().to("cuda")
    features, labels = g.ndata["feat"], g.ndata["label"]
    masks = g.ndata["train_mask"], g.ndata["val_mask"]
    model = SAGE([features.shape[1], 16, data.num_classes]).to("cuda")
    train(g, features, labels, masks, model)
