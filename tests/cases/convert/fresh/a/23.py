from __future__ import division
from __future__ import print_function

import time
import argparse
import math
import numpy as np

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

# Node classification with a graph convolutional network on a stochastic block model (after pygcn).
parser = argparse.ArgumentParser()
parser.add_argument('--no-cuda', action='store_true', default=False, help='Disables CUDA training.')
parser.add_argument('--fastmode', action='store_true', default=False, help='Validate during training pass.')
parser.add_argument('--seed', type=int, default=42, help='Random seed.')
parser.add_argument('--epochs', type=int, default=120)
parser.add_argument('--lr', type=float, default=0.01)
parser.add_argument('--weight_decay', type=float, default=5e-4)
parser.add_argument('--hidden', type=int, default=16)
parser.add_argument('--dropout', type=float, default=0.5)
parser.add_argument('--nodes', type=int, default=900)
args = parser.parse_args()
args.cuda = not args.no_cuda and torch.cuda.is_available()

np.random.seed(args.seed)
torch.manual_seed(args.seed)
if args.cuda:
    torch.cuda.manual_seed(args.seed)


def load_data(n, k=5, p_in=0.03, p_out=0.005, n_feat=60):
    labels = np.random.randint(0, k, n)
    prob = np.where(labels[:, None] == labels[None], p_in, p_out)
    adj = np.triu(np.random.rand(n, n) < prob, 1).astype(np.float32)
    adj = adj + adj.T + np.eye(n, dtype=np.float32)
    d = adj.sum(1) ** -0.5
    adj = d[:, None] * adj * d[None]
    topic = np.random.rand(k, n_feat) * 0.2
    features = (np.random.rand(n, n_feat) < topic[labels]).astype(np.float32)
    features = features / np.maximum(features.sum(1, keepdims=True), 1)
    order = np.random.permutation(n)
    return (torch.tensor(adj).to_sparse_coo(), torch.tensor(features), torch.tensor(labels),
            torch.tensor(order[:100]), torch.tensor(order[100:300]), torch.tensor(order[300:]))


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features, bias=True):
        super(GraphConvolution, self).__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None
        stdv = 1. / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        if self.bias is not None:
            self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input, adj):
        output = torch.spmm(adj, torch.mm(input, self.weight))
        return output + self.bias if self.bias is not None else output


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super(GCN, self).__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


def accuracy(output, labels):
    return output.max(1)[1].eq(labels).double().mean()


adj, features, labels, idx_train, idx_val, idx_test = load_data(args.nodes)
model = GCN(features.shape[1], args.hidden, int(labels.max()) + 1, args.dropout)
optimizer = optim.Adam(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)

if args.cuda:
    model.cuda()
    features, adj, labels = features.cuda(), adj.cuda(), labels.cuda()
    idx_train, idx_val, idx_test = idx_train.cuda(), idx_val.cuda(), idx_test.cuda()


def train(epoch):
    t = time.time()
    model.train()
    optimizer.zero_grad()
    output = model(features, adj)
    loss_train = F.nll_loss(output[idx_train], labels[idx_train])
    acc_train = accuracy(output[idx_train], labels[idx_train])
    loss_train.backward()
    optimizer.step()
    if not args.fastmode:
        model.eval()
        output = model(features, adj)
    loss_val = F.nll_loss(output[idx_val], labels[idx_val])
    acc_val = accuracy(output[idx_val], labels[idx_val])
    if epoch % 20 == 0:
        print('Epoch: {:04d}'.format(epoch + 1), 'loss_train: {:.4f}'.format(loss_train.item()),
              'acc_train: {:.4f}'.format(acc_train.item()), 'loss_val: {:.4f}'.format(loss_val.item()),
              'acc_val: {:.4f}'.format(acc_val.item()), 'time: {:.4f}s'.format(time.time() - t))


def test():
    model.eval()
    output = model(features, adj)
    print("Test set results:", "loss= {:.4f}".format(F.nll_loss(output[idx_test], labels[idx_test]).item()),
          "accuracy= {:.4f}".format(accuracy(output[idx_test], labels[idx_test]).item()))


t_total = time.time()
for epoch in range(args.epochs):
    train(epoch)
print("Optimization Finished! Total time elapsed: {:.4f}s".format(time.time() - t_total))
test()
