# -*- coding: utf-8 -*-
# Masked language model with word-level vocabulary on a generated mini-language.
import math
import random
import torch
import torch.nn as nn
from torch.utils.data import IterableDataset, DataLoader

PAD, MASK, CLS = 0, 1, 2
SEQ = 16
N_MASK = 3          # exactly three predictions per sentence
BATCH = 40
STEPS = 360
EVAL_EVERY = 90
D = 64
SEED = 31415

NOUNS = {"sg": ["dog", "bird", "child", "pilot", "judge"], "pl": ["dogs", "birds", "children", "pilots", "judges"]}
VERBS = {"sg": ["sees", "likes", "calls", "hears"], "pl": ["see", "like", "call", "hear"]}
DETS = {"sg": ["a", "this", "every"], "pl": ["some", "these", "all"]}
ADJ = ["old", "small", "happy", "strange", "quiet"]
LINK = ["and", "but", "while"]


def noun_phrase(r):
    n = r.choice(["sg", "pl"])
    words = [r.choice(DETS[n])] + ([r.choice(ADJ)] if r.random() < 0.5 else []) + [r.choice(NOUNS[n])]
    return words, n


def clause(r):
    s, n = noun_phrase(r)
    o, _ = noun_phrase(r)
    return s + [r.choice(VERBS[n])] + o


def sentence(r):
    return clause(r) + ([r.choice(LINK)] + clause(r) if r.random() < 0.7 else [])


words = sorted({w for d in (NOUNS, VERBS, DETS) for l in d.values() for w in l} | set(ADJ) | set(LINK))
vocab = {w: i + 3 for i, w in enumerate(words)}
V = len(vocab) + 3
inv = {i: w for w, i in vocab.items()}


class MaskedSentences(IterableDataset):
    """Endless stream. Every element: (corrupted ids, positions, original ids at the positions)."""

    def __init__(self, seed):
        self.seed = seed

    def __iter__(self):
        r = random.Random(self.seed)
        while True:
            ids = [CLS] + [vocab[w] for w in sentence(r)]
            ids = ids[:SEQ]
            pos = sorted(r.sample(range(1, len(ids)), N_MASK))
            target = [ids[p] for p in pos]
            x = ids + [PAD] * (SEQ - len(ids))
            for p in pos:
                u = r.random()
                if u < 0.8:
                    x[p] = MASK
                elif u < 0.9:
                    x[p] = r.randrange(3, V)
            yield torch.tensor(x), torch.tensor(pos), torch.tensor(target)


class MiniBert(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(V, D, padding_idx=PAD)
        nn.init.normal_(self.tok.weight, std=0.05)
        self.pos = nn.Parameter(torch.randn(SEQ, D) * 0.05)
        layer = nn.TransformerEncoderLayer(D, 4, 128, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(D)
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, x, positions):
        h = self.enc(self.tok(x) + self.pos, src_key_padding_mask=x == PAD)
        h = self.norm(h.gather(1, positions.unsqueeze(-1).expand(-1, -1, D)))
        return h @ self.tok.weight.t() + self.bias


def number_agreement(model, device, n=200):
    """Share of sentences in which the masked verb gets the right number."""
    r = random.Random(77)
    good = 0
    model.eval()
    with torch.no_grad():
        for _ in range(n):
            s, num = noun_phrase(r)
            ids = [CLS] + [vocab[w] for w in s] + [MASK] + [vocab[w] for w in noun_phrase(r)[0]]
            x = torch.tensor([ids + [PAD] * (SEQ - len(ids))], device=device)
            logits = model(x, torch.tensor([[len(s) + 1]], device=device))[0, 0]
            best = max(VERBS["sg"] + VERBS["pl"], key=lambda w: logits[vocab[w]].item())
            good += best in VERBS[num]
    return good / n


if __name__ == "__main__":
    torch.manual_seed(SEED)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    stream = iter(DataLoader(MaskedSentences(SEED), batch_size=BATCH))
    held_out = iter(DataLoader(MaskedSentences(SEED + 1), batch_size=100))
    dev_set = [next(held_out) for _ in range(4)]

    model = MiniBert().to(device)
    ce = nn.CrossEntropyLoss()
    optim = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    noam = torch.optim.lr_scheduler.LambdaLR(optim, lambda s: min((s + 1) / 20, math.sqrt(20 / (s + 1))))
    print("vocabulary", V, "parameters", sum(p.numel() for p in model.parameters()))
    acc_loss = acc_hit = acc_n = 0
    for step in range(1, STEPS + 1):
        model.train()
        x, pos, tgt = (t.to(device) for t in next(stream))
        logits = model(x, pos)
        loss = ce(logits.reshape(-1, V), tgt.reshape(-1))
        optim.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        noam.step()
        acc_loss += loss.item() * tgt.numel()
        acc_hit += (logits.argmax(-1) == tgt).sum().item()
        acc_n += tgt.numel()
        if step % EVAL_EVERY == 0:
            model.eval()
            with torch.no_grad():
                dl = [ce(model(x.to(device), p.to(device)).reshape(-1, V), t.to(device).reshape(-1)).item() for x, p, t in dev_set]
            dl = sum(dl) / len(dl)
            print("step %4d  train loss %.4f acc %.3f | dev loss %.4f ppl %.2f | agreement %.3f" % (
                step, acc_loss / acc_n, acc_hit / acc_n, dl, math.exp(dl), number_agreement(model, device)))
            acc_loss = acc_hit = acc_n = 0
    torch.save(model.state_dict(), "minibert.bin")
