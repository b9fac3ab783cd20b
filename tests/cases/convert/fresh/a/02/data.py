import random

import torch

SUBJ = ["the miller", "a grey cat", "the old king", "my sister", "the ferryman", "a tired fox", "the clockmaker"]
VERB = ["sold", "watched", "carried", "forgot", "painted", "counted", "followed"]
OBJ = ["three red apples", "a broken wheel", "the long river", "seven silver coins", "an empty letter", "the north wind"]
TAIL = ["before dawn", "in the rain", "without a word", "near the mill", "for the last time", "as always"]


def make_text(n_sentences, seed):
    rnd = random.Random(seed)
    out = []
    for _ in range(n_sentences):
        s = f"{rnd.choice(SUBJ)} {rnd.choice(VERB)} {rnd.choice(OBJ)}"
        if rnd.random() < 0.6:
            s += " " + rnd.choice(TAIL)
        out.append(s + rnd.choice([".", ".", "!", ";"]))
    return " ".join(out)


class Corpus:
    def __init__(self, sizes=(900, 90, 90), seed=7):
        train, valid, test = (make_text(n, seed + i) for i, n in enumerate(sizes))
        self.chars = sorted(set(train))
        self.stoi = {c: i for i, c in enumerate(self.chars)}
        self.train, self.valid, self.test = (self.encode(t) for t in (train, valid, test))

    def encode(self, text):
        return torch.tensor([self.stoi[c] for c in text if c in self.stoi], dtype=torch.long)

    def decode(self, ids):
        return "".join(self.chars[i] for i in ids)

    def __len__(self):
        return len(self.chars)


def batchify(data, bsz):
    """Cut the sequence into bsz columns: the result has shape (n_steps, bsz)."""
    nbatch = data.size(0) // bsz
    return data[: nbatch * bsz].view(bsz, -1).t().contiguous()


def get_batch(source, i, bptt):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i:i + seq_len], source[i + 1:i + 1 + seq_len].reshape(-1)
