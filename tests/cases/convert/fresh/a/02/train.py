"""Character LSTM with truncated back-propagation through time (after the word_language_model example)."""
import argparse
import math
import time

import torch
import torch.nn as nn

from data import Corpus, batchify, get_batch
from model import RNNModel, sample

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="LSTM", choices=["LSTM", "GRU"])
parser.add_argument("--emsize", type=int, default=96)
parser.add_argument("--nhid", type=int, default=96)
parser.add_argument("--nlayers", type=int, default=1)
parser.add_argument("--lr", type=float, default=8.0)
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch_size", type=int, default=20)
parser.add_argument("--bptt", type=int, default=32)
parser.add_argument("--tied", action="store_true")
parser.add_argument("--seed", type=int, default=1111)
parser.add_argument("--log-interval", type=int, default=20)
parser.add_argument("--save", default="char_lm.pt")
args = parser.parse_args()

torch.manual_seed(args.seed)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

corpus = Corpus()
eval_batch_size = 10
train_data = batchify(corpus.train, args.batch_size).to(device)
val_data = batchify(corpus.valid, eval_batch_size).to(device)
test_data = batchify(corpus.test, eval_batch_size).to(device)
print(f"{len(corpus)} symbols, train {tuple(train_data.shape)}, valid {tuple(val_data.shape)}")

ntokens = len(corpus)
model = RNNModel(args.model, ntokens, args.emsize, args.nhid, args.nlayers, args.tied).to(device)
criterion = nn.CrossEntropyLoss()


def repackage_hidden(h):
    """Detach the hidden state from its history."""
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def evaluate(source):
    model.eval()
    total = 0.0
    hidden = model.init_hidden(eval_batch_size)
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, args.bptt):
            data, targets = get_batch(source, i, args.bptt)
            output, hidden = model(data, hidden)
            hidden = repackage_hidden(hidden)
            total += len(data) * criterion(output, targets).item()
    return total / (len(source) - 1)


def train_epoch(epoch, lr):
    model.train()
    total, start = 0.0, time.time()
    hidden = model.init_hidden(args.batch_size)
    for batch, i in enumerate(range(0, train_data.size(0) - 1, args.bptt)):
        data, targets = get_batch(train_data, i, args.bptt)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        total += loss.item()
        if batch % args.log_interval == 0 and batch > 0:
            cur = total / args.log_interval
            print("| epoch {:2d} | {:4d}/{:4d} | lr {:05.2f} | ms/batch {:5.1f} | loss {:5.3f} | ppl {:7.2f}".format(
                epoch, batch, len(train_data) // args.bptt, lr, (time.time() - start) * 1000 / args.log_interval,
                cur, math.exp(cur)))
            total, start = 0.0, time.time()


lr = args.lr
best_val = None
for epoch in range(1, args.epochs + 1):
    train_epoch(epoch, lr)
    val_loss = evaluate(val_data)
    print("-" * 70)
    print(f"| end of epoch {epoch} | valid loss {val_loss:.3f} | valid ppl {math.exp(val_loss):.2f}")
    print("-" * 70)
    if not best_val or val_loss < best_val:
        with open(args.save, "wb") as f:
            torch.save(model.state_dict(), f)
        best_val = val_loss
    else:
        lr /= 4.0  # anneal if no improvement

with open(args.save, "rb") as f:
    model.load_state_dict(torch.load(f, map_location=device))
test_loss = evaluate(test_data)
print(f"test loss {test_loss:.3f} ppl {math.exp(test_loss):.2f}")
print(sample(model, corpus, 120, device))
