# coding: utf-8
import argparse
import builtins
import gc
import math
import os
import random
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser(description='next word, by an LSTM')
parser.add_argument('--emsize', type=int, default=24)
parser.add_argument('--nhid', type=int, default=48)
parser.add_argument('--nlayers', type=int, default=1)
parser.add_argument('--lr', type=float, default=12, help='rate to begin with')
parser.add_argument('--clip', type=float, default=0.25)
parser.add_argument('--epochs', type=int, default=6)
parser.add_argument('--batch_size', type=int, default=16, metavar='N')
parser.add_argument('--bptt', type=int, default=20, help='length of a piece')
parser.add_argument('--tied', action='store_true')
parser.add_argument('--seed', type=int, default=1234)
parser.add_argument('--cuda', action='store_true')
parser.add_argument('--log-interval', type=int, default=10, metavar='N')
parser.add_argument('--save', type=str, default='lm.pt')
args = parser.parse_args()

# torchrun starts one process per GPU; without it this is the only one
distributed = 'RANK' in os.environ
rank, world_size = int(os.environ.get('RANK', 0)), int(os.environ.get('WORLD_SIZE', 1))
if distributed:
    if args.cuda:
        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
    dist.init_process_group('nccl' if args.cuda else 'gloo')


def print(*args, **kwargs):
    if rank == 0:
        builtins.print(*args, **kwargs)


torch.manual_seed(args.seed)
if torch.cuda.is_available() and not args.cuda:
    print("There is a GPU here: --cuda uses it.")
device = torch.device("cuda" if args.cuda else "cpu")


def over_ranks(*values):
    """The sum of each value over all ranks; all of them must call this."""
    sums = torch.tensor(values, dtype=torch.float64, device=device)
    if distributed:
        dist.all_reduce(sums)
    return sums.tolist()

###############################################################################
# Corpus: a text from a small grammar
###############################################################################


class Vocabulary(object):
    def __init__(self):
        self.index = {}
        self.words = []

    def add(self, word):
        if word not in self.index:
            self.words.append(word)
            self.index[word] = len(self.words) - 1
        return self.index[word]

    def __len__(self):
        return len(self.words)


class Corpus(object):
    who = 'baker farmer painter sailor miller'.split()
    does = 'sees meets paints carries sells'.split()
    what = 'bread boat barn flour canvas'.split()

    def __init__(self, seed=0):
        self.vocabulary = Vocabulary()
        rng = random.Random(seed)
        self.train = self.tokenize(rng, 1300)
        self.valid = self.tokenize(rng, 200)
        self.test = self.tokenize(rng, 200)

    def tokenize(self, rng, sentences):
        ids = []
        for _ in range(sentences):
            k = rng.randrange(5)
            words = ['the', self.who[k], self.does[k if rng.random() < 0.8 else rng.randrange(5)],
                     'the', self.what[(2 * k + 1) % 5], '<eos>']
            ids += [self.vocabulary.add(w) for w in words]
        return torch.tensor(ids)


corpus = Corpus()


# One column per sequence: the text runs down the columns, and what is left over is cut off.
def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    data = data.narrow(0, 0, nbatch * bsz)
    if bsz % world_size:
        raise SystemExit('%d columns cannot be dealt to %d ranks' % (bsz, world_size))
    # Each rank reads whole columns, so that its hidden state goes with its text
    data = data.view(bsz, -1).t()[:, rank::world_size].contiguous()
    return data.to(device)


eval_batch_size = 8
train_data = batchify(corpus.train, args.batch_size)
val_data = batchify(corpus.valid, eval_batch_size)
test_data = batchify(corpus.test, eval_batch_size)


class WordLSTM(nn.Module):
    def __init__(self, num_words, size_in, nhid, nlayers, tie_weights=False):
        super(WordLSTM, self).__init__()
        self.num_words = num_words
        self.nhid = nhid
        self.nlayers = nlayers
        self.encoder = nn.Embedding(num_words, size_in)
        self.rnn = nn.LSTM(size_in, nhid, nlayers)
        self.decoder = nn.Linear(nhid, num_words)
        if tie_weights:
            if nhid != size_in:
                raise ValueError('--tied needs --nhid equal to --emsize')
            self.decoder.weight = self.encoder.weight

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.encoder(input), hidden)
        return self.decoder(output).view(-1, self.num_words), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (weight.new_zeros(self.nlayers, bsz, self.nhid),
                weight.new_zeros(self.nlayers, bsz, self.nhid))


num_words_total = len(corpus.vocabulary)
model = WordLSTM(num_words_total, args.emsize, args.nhid, args.nlayers, args.tied).to(device)
ddp = DistributedDataParallel(model) if distributed else model
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

###############################################################################
# Training code
###############################################################################


def cut_history(h):
    """The same numbers, without their history."""
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(cut_history(v) for v in h)


def get_batch(source, i):
    seq_len = min(args.bptt, len(source) - 1 - i)
    data = source[i:i+seq_len]
    target = source[i+1:i+1+seq_len].view(-1)
    return data, target


def evaluate(data_source):
    model.eval()
    total_loss = 0.
    hidden = model.init_hidden(eval_batch_size // world_size)
    with torch.no_grad():
        for i in range(0, data_source.size(0) - 1, args.bptt):
            data, targets = get_batch(data_source, i)
            output, hidden = model(data, hidden)
            hidden = cut_history(hidden)
            total_loss += len(data) * criterion(output, targets).item()
    total_loss, = over_ranks(total_loss)
    return total_loss / world_size / (len(data_source) - 1)


def train():
    model.train()
    total_loss = 0.
    start_time = time.time()
    hidden = model.init_hidden(args.batch_size // world_size)
    for batch, i in enumerate(range(0, train_data.size(0) - 1, args.bptt)):
        data, targets = get_batch(train_data, i)
        # without this, the gradient would run back to the beginning of the text
        hidden = cut_history(hidden)
        optimizer.zero_grad()
        output, hidden = ddp(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()

        total_loss += loss.item()

        if batch % args.log_interval == 0 and batch > 0:
            cur_loss = over_ranks(total_loss)[0] / world_size / args.log_interval
            elapsed = time.time() - start_time
            print('epoch {:3d} | {:5d}/{:5d} pieces | rate {:02.2f} | ms/piece {:5.2f} | '
                  'loss {:5.2f} | ppl {:8.2f}'.format(
                      epoch, batch, len(train_data) // args.bptt, lr,
                      elapsed * 1000 / args.log_interval, cur_loss, math.exp(cur_loss)))
            total_loss = 0
            start_time = time.time()


lr = args.lr
best_val_loss = None

# Ctrl + C ends the training early.
try:
    for epoch in range(1, args.epochs+1):
        epoch_start_time = time.time()
        train()
        val_loss = evaluate(val_data)
        print('-' * 70)
        print('end of epoch {:3d} | {:5.2f}s | valid loss {:.4f} | valid ppl {:.3f}'.format(
            epoch, (time.time() - epoch_start_time), val_loss, math.exp(val_loss)))
        print('-' * 70)
        # The best so far goes to the disk.
        if not best_val_loss or val_loss < best_val_loss:
            if rank == 0:
                with open(args.save, 'wb') as f:
                    torch.save(model, f)
            best_val_loss = val_loss
        else:
            # No progress: a smaller rate
            lr /= 5
            for group in optimizer.param_groups:
                group['lr'] = lr
except KeyboardInterrupt:
    print('-' * 70)
    print('Stopped by hand')

if distributed:
    dist.barrier()  # until rank 0 has written
with open(args.save, 'rb') as f:
    model = torch.load(f, map_location=device, weights_only=False)
    model.rnn.flatten_parameters()

test_loss = evaluate(test_data)
print('=' * 70)
print('The end | test loss {:.4f} | test ppl {:.3f}'.format(test_loss, math.exp(test_loss)))
print('=' * 70)

if distributed:
    del ddp  # a wrapper that is still alive may abort the process when the group ends
    gc.collect()
    dist.destroy_process_group()
