#!/usr/bin/env python3
# unseeded: every run begins with other weights and another order
import sys, os
import torch, torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

class Parity(Dataset):
	"""Eight bits, and whether the number of ones among the first three is odd"""
	def __init__(self, n, start):
		numbers = (torch.arange(n) * 37 + start) % 256
		self.bits = torch.stack([(numbers >> k) & 1 for k in range(8)], dim=1).float()
		self.odd = self.bits[:, :3].sum(1).long() % 2
	def __len__(self):
		return len(self.odd)
	def __getitem__(self, i):
		return self.bits[i], self.odd[i]

class Net(nn.Module):
	def __init__(self):
		super().__init__()
		self.a = nn.Linear(8, 64)
		self.drop = nn.Dropout(0.1)
		self.b = nn.Linear(64, 2)
	def forward(self, x):
		return self.b(self.drop(torch.tanh(self.a(x))))

def fit(net, loader, opt, dev):
	net.train()
	total = 0
	for x, y in loader:
		x, y = x.to(dev), y.to(dev)
		opt.zero_grad()
		l = F.cross_entropy(net(x), y)
		l.backward()
		opt.step()
		total += l.item()
	return total / len(loader)

def score(net, loader, dev):
	net.eval()
	good = 0
	with torch.no_grad():
		for x, y in loader:
			x, y = x.to(dev), y.to(dev)
			good += int((net(x).argmax(1) == y).sum())
	return good / len(loader.dataset)

if __name__ == "__main__":
	epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
	dev = torch.device("cuda:0") if torch.cuda.is_available() else torch.device("cpu")
	train = DataLoader(Parity(1024, 0), batch_size=32, shuffle=True)
	test = DataLoader(Parity(256, 11), batch_size=64)
	net = Net().to(dev)
	opt = torch.optim.Adam(net.parameters(), lr=0.01)
	for e in range(epochs):
		l = fit(net, train, opt, dev)
		if e % 5 == 4: print("%d\t%.4f\t%.3f" % (e + 1, l, score(net, test, dev)))
	if not os.path.exists("out"):
		os.makedirs("out")
	torch.save(net.state_dict(), "out/parity.pt")
