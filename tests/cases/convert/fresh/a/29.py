"""Topic classification with bags of words, manifold mixup and length-bucketed batches."""
import math
import os
import random
from collections import Counter, defaultdict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

TOPICS = {
    "sport": "match goal team season coach player league win score referee stadium cup".split(),
    "food": "recipe oven salt butter sauce taste dish chef onion bread soup spice".split(),
    "space": "orbit rocket planet launch crew moon telescope mission star probe fuel gravity".split(),
    "money": "bank market price share loan trade profit tax budget fund rate debt".split(),
}
COMMON = "the a of to and in that it is was for on with as at by from this but not are they".split()
AMBIGUOUS = "star fund probe season taste score rate cup win mission".split()


def make_corpus(n, seed):
    rnd = random.Random(seed)
    names = list(TOPICS)
    docs = []
    for _ in range(n):
        y = rnd.randrange(len(names))
        length = int(min(60, max(5, rnd.lognormvariate(2.9, 0.6))))
        words = []
        for _ in range(length):
            u = rnd.random()
            if u < 0.14:
                words.append(rnd.choice(TOPICS[names[y]]))
            elif u < 0.24:
                words.append(rnd.choice(AMBIGUOUS))
            elif u < 0.30:
                words.append(rnd.choice(TOPICS[rnd.choice(names)]))
            else:
                words.append(rnd.choice(COMMON))
        docs.append((" ".join(words), y))
    return docs


class Vocab:
    def __init__(self, docs, min_freq=2):
        c = Counter(w for t, _ in docs for w in self.tokens(t))
        self.index = {"<unk>": 0}
        for w, k in c.most_common():
            if k >= min_freq:
                self.index[w] = len(self.index)

    @staticmethod
    def tokens(text):
        ws = text.split()
        return ws + [a + "_" + b for a, b in zip(ws, ws[1:])]

    def __call__(self, text):
        return [self.index.get(w, 0) for w in self.tokens(text)]

    def __len__(self):
        return len(self.index)


class Docs(Dataset):
    def __init__(self, docs, vocab):
        self.rows = [(torch.tensor(vocab(t)), y) for t, y in docs]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class BucketBatches(Sampler):
    """Batches of documents of similar length, in random order."""

    def __init__(self, lengths, batch_size, shuffle=True, pool=8):
        self.lengths, self.batch_size, self.shuffle, self.pool = lengths, batch_size, shuffle, pool

    def __len__(self):
        return math.ceil(len(self.lengths) / self.batch_size)

    def __iter__(self):
        order = np.random.permutation(len(self.lengths)) if self.shuffle else np.arange(len(self.lengths))
        batches, leftover = [], []
        chunk = self.batch_size * self.pool
        for s in range(0, len(order), chunk):
            part = sorted(order[s:s + chunk], key=lambda i: self.lengths[i])
            for k in range(0, len(part), self.batch_size):
                b = [int(i) for i in part[k:k + self.batch_size]]
                (batches if len(b) == self.batch_size else leftover).append(b)
        if self.shuffle:
            np.random.shuffle(batches)
        yield from batches + leftover


def collate_batch(batch):
    offsets = torch.tensor([0] + [len(ids) for ids, _ in batch[:-1]]).cumsum(0)
    return torch.cat([ids for ids, _ in batch]), offsets, torch.tensor([y for _, y in batch])


class TextClassifier(nn.Module):
    def __init__(self, vocab_size, dim, n_class):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocab_size, dim, mode="mean")
        self.hidden = nn.Linear(dim, dim)
        self.fc = nn.Linear(dim, n_class)
        self.embedding.weight.data.uniform_(-0.5, 0.5)

    def forward(self, ids, offsets, lam=None, perm=None):
        e = self.embedding(ids, offsets)
        if lam is not None:
            e = lam * e + (1 - lam) * e[perm]
        return self.fc(F.relu(self.hidden(e)))


class Callback:
    def on_epoch_end(self, trainer, logs): ...
    def on_train_end(self, trainer): ...


class Printer(Callback):
    def on_epoch_end(self, trainer, logs):
        print(f"epoch {trainer.epoch:2d} " + " ".join(f"{k}={v:.4f}" for k, v in logs.items()))


class Checkpoint(Callback):
    def __init__(self, path, monitor):
        self.path, self.monitor, self.best = path, monitor, -float("inf")

    def on_epoch_end(self, trainer, logs):
        if logs[self.monitor] > self.best:
            self.best = logs[self.monitor]
            torch.save(trainer.model.state_dict(), self.path)

    def on_train_end(self, trainer):
        trainer.model.load_state_dict(torch.load(self.path, map_location=trainer.device))
        print(f"restored the best model ({self.monitor}={self.best:.4f})")


class History(Callback):
    def __init__(self):
        self.data = defaultdict(list)

    def on_epoch_end(self, trainer, logs):
        for k, v in logs.items():
            self.data[k].append(v)

    def on_train_end(self, trainer):
        np.savez("history.npz", **self.data)


class Trainer:
    def __init__(self, model, optimizer, device, callbacks, mixup_alpha=0.3):
        self.model, self.optimizer, self.device = model.to(device), optimizer, device
        self.callbacks, self.alpha = callbacks, mixup_alpha

    def _train_step(self, ids, offsets, y):
        ids, offsets, y = ids.to(self.device), offsets.to(self.device), y.to(self.device)
        lam = float(np.random.beta(self.alpha, self.alpha))
        perm = torch.randperm(len(y), device=self.device)
        out = self.model(ids, offsets, lam, perm)
        loss = lam * F.cross_entropy(out, y) + (1 - lam) * F.cross_entropy(out, y[perm])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item(), len(y)

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        k = self.model.fc.out_features
        cm, loss = np.zeros((k, k), dtype=int), 0.0
        for ids, offsets, y in loader:
            out = self.model(ids.to(self.device), offsets.to(self.device)).cpu()
            loss += F.cross_entropy(out, y, reduction="sum").item()
            np.add.at(cm, (y.numpy(), out.argmax(1).numpy()), 1)
        tp = cm.diagonal()
        f1 = 2 * tp / np.maximum(cm.sum(0) + cm.sum(1), 1)
        return {"val_loss": loss / cm.sum(), "val_acc": tp.sum() / cm.sum(), "macro_f1": f1.mean()}

    def fit(self, loader, valid, epochs):
        for self.epoch in range(1, epochs + 1):
            self.model.train()
            total = n = 0
            for batch in loader:
                l, k = self._train_step(*batch)
                total, n = total + l * k, n + k
            logs = {"loss": total / n, **self.evaluate(valid)}
            for cb in self.callbacks:
                cb.on_epoch_end(self, logs)
        for cb in self.callbacks:
            cb.on_train_end(self)


if __name__ == "__main__":
    SEED = int(os.environ.get("SEED", 10))
    random.seed(SEED); np.random.seed(SEED); torch.manual_seed(SEED)
    dev = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_docs, valid_docs = make_corpus(1900, 1), make_corpus(400, 2)
    vocab = Vocab(train_docs)
    train_set, valid_set = Docs(train_docs, vocab), Docs(valid_docs, vocab)
    train_dl = DataLoader(train_set, batch_sampler=BucketBatches([len(r[0]) for r in train_set.rows], 64), collate_fn=collate_batch)
    valid_dl = DataLoader(valid_set, batch_size=128, collate_fn=collate_batch)
    net = TextClassifier(len(vocab), 48, len(TOPICS))
    print("vocabulary", len(vocab), "batches", len(train_dl))
    trainer = Trainer(net, torch.optim.Adam(net.parameters(), lr=5e-3), dev, [Printer(), Checkpoint("textclf.pt", "macro_f1"), History()])
    trainer.fit(train_dl, valid_dl, epochs=10)
    print("final", {k: round(float(v), 4) for k, v in trainer.evaluate(valid_dl).items()})
