"""Human-readable dates -> ISO dates (always ten symbols, hence no padding on the target side)."""
import datetime
import random

import torch
from torch.utils.data import Dataset

MONTHS = ["january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"]
IN_CHARS = "abcdefghijklmnopqrstuvwxyz0123456789 ,./'"
OUT_CHARS = "0123456789-"
PAD, MAX_IN, OUT_LEN = 0, 20, 10
BOS = len(OUT_CHARS)


def human(d, r):
    m = MONTHS[d.month - 1]
    return r.choice([
        f"{d.day} {m} {d.year}", f"{m} {d.day}, {d.year}", f"{d.day} {m[:3]} {d.year}", f"{m[:3]} {d.day} '{d.year % 100:02d}",
        f"{d.day:02d}/{d.month:02d}/{d.year}", f"{d.day}.{d.month}.{d.year}",
    ])


class DatePairs(Dataset):
    def __init__(self, n, seed):
        r = random.Random(seed)
        base = datetime.date(1970, 1, 1)
        self.pairs = []
        for _ in range(n):
            d = base + datetime.timedelta(days=r.randrange(365 * 29))
            self.pairs.append((human(d, r), d.isoformat()))
        self.enc = {c: i + 1 for i, c in enumerate(IN_CHARS)}
        self.dec = {c: i for i, c in enumerate(OUT_CHARS)}

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        s, t = self.pairs[i]
        x = [self.enc[c] for c in s][:MAX_IN]
        x += [PAD] * (MAX_IN - len(x))
        return torch.tensor(x), torch.tensor([self.dec[c] for c in t])


def to_text(ids):
    return "".join(OUT_CHARS[i] if i < len(OUT_CHARS) else "?" for i in ids)
