"""A language model on texts of different lengths, in batches of similar length, on one GPU.

python examples/side_by_side/language_model_one_gpu.py
"""

import random
from collections.abc import Iterator
from pydoc_data import topics

import torch
from ending import finish
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

PAD = 0
BATCH = 32


def sentences(most: int) -> list[torch.Tensor]:
    """Return lines of Python's own help as bytes."""
    lines = [line.strip() for text in topics.topics.values() for line in text.splitlines()]
    kept = [line.encode("ascii", "ignore")[:60] for line in lines if len(line) > 10]
    return [torch.tensor(list(line)) for line in kept[:most]]


class SimilarLengths:
    """Batches of texts of similar length, in a new random order in every epoch."""

    def __init__(self, texts: list[torch.Tensor]) -> None:
        self.lengths = [len(text) for text in texts]

    def __iter__(self) -> Iterator[list[int]]:
        """Yield lists of indices."""
        order = sorted(range(len(self.lengths)), key=lambda n: (self.lengths[n], random.random()))
        batches = [order[first : first + BATCH] for first in range(0, len(order), BATCH)]
        random.shuffle(batches)
        yield from batches


class Model(nn.Module):
    """A recurrent model whose input and output share their embedding."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, width, padding_idx=PAD)
        self.body = nn.GRU(width, width, batch_first=True)
        self.dropout = nn.Dropout(0.1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return scores for the next token at every place."""
        states, _ = self.body(self.dropout(self.embedding(tokens)))
        return self.dropout(states) @ self.embedding.weight.T


def collate(texts: list[torch.Tensor]) -> torch.Tensor:
    """Pad the texts of a batch to the longest of them."""
    return pad_sequence(texts, batch_first=True, padding_value=PAD)


def main() -> None:
    """Train for two epochs; report the loss per token."""
    random.seed(0)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    texts = sentences(500)
    sampler = SimilarLengths(texts[:400])
    train = DataLoader(texts[:400], batch_sampler=sampler, collate_fn=collate)
    test = DataLoader(texts[400:], batch_size=BATCH, collate_fn=collate)
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(2):
        model.train()
        losses = []
        for tokens in train:
            tokens = tokens.to(device)
            scores, targets = model(tokens[:, :-1]), tokens[:, 1:]
            loss = F.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=PAD)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        total = count = 0
        with torch.no_grad():
            for tokens in test:
                tokens = tokens.to(device)
                scores, targets = model(tokens[:, :-1]), tokens[:, 1:]
                total += F.cross_entropy(
                    scores.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum"
                ).item()
                count += (targets != PAD).sum().item()
    finish(sum(losses) / len(losses), model, nats_per_token=total / count)


if __name__ == "__main__":
    main()
