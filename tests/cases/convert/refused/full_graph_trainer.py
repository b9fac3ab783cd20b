# refused: full_graph
import torch
from torch import nn


class Trainer:
    def __init__(self, model, graph, lr=1e-2):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = model.to(self.device)
        self.adjacency = graph["adjacency"].to(self.device)
        self.nodes = graph["nodes"].to(self.device)
        self.labels = graph["labels"].to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.criterion = nn.CrossEntropyLoss()

    def step(self):
        self.optimizer.zero_grad()
        logits = self.model(self.nodes, self.adjacency)
        loss = self.criterion(logits, self.labels)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, epochs):
        best = float("inf")
        for epoch in range(epochs):
            loss = self.step()
            if loss < best:
                best = loss
                torch.save(self.model.state_dict(), "best.pt")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(100, 7)

    def forward(self, x, a):
        return a @ self.lin(x)


if __name__ == "__main__":
    Trainer(Net(), torch.load("graph.pt")).fit(300)
