# refused: full_graph
import torch
import torch.nn.functional as F
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import GATConv

dataset = Planetoid(root="data", name="Cora")


class GAT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = GATConv(dataset.num_features, 8, heads=8)
        self.b = GATConv(64, dataset.num_classes)

    def forward(self, x, edge_index):
        return self.b(F.elu(self.a(x, edge_index)), edge_index)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model, data = GAT().to(device), dataset[0].to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)


def train():
    model.train()
    optimizer.zero_grad()
    out = model(data.x, data.edge_index)
    loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
    loss.backward()
    optimizer.step()
    return float(loss)


for epoch in range(1, 201):
    print(epoch, train())
