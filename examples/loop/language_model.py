"""A language model on texts of different lengths, in batches of similar length.

A batch sampler forms the global batches; the loss is a mean over tokens, of which every shard has
a different number.

python examples/loop/language_model.py
lockstep train examples/loop/language_model.py --replicas 2 --out runs/language-model
"""

import random
from collections.abc import Iterator
from pydoc_data import topics

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

import lockstep

PAD = 0
BATCH = 32


def sentences(most: int) -> list[torch.Tensor]:
    """Return lines of Python's own help as bytes."""
    lines = [line.strip() for text in topics.topics.values() for line in text.splitlines()]
    kept = [line.encode("ascii", "ignore")[:60] for line in lines if len(line) > 10]
    return [torch.tensor(list(line)) for line in kept[:most]]


class SimilarLengths:
    """Global batches of texts of similar length, in a new random order in every epoch."""

    def __init__(self, texts: list[torch.Tensor]) -> None:
        self.lengths = [len(text) for text in texts]

    def __iter__(self) -> Iterator[list[int]]:
        """Yield lists of indices. lockstep seeds `random` before each epoch."""
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
    texts = sentences(500)
    train, test = texts[:400], texts[400:]
    with lockstep.Loop(global_batch=BATCH, exact=True) as loop:
        model = loop.model(Model())
        optimizer = loop.optimizer(torch.optim.AdamW(model.parameters(), lr=5e-3), clip=1.0)
        batches = loop.batches(train, collate=collate, batch_sampler=SimilarLengths(train))

        def loss(tokens: torch.Tensor):
            scores, targets = model(tokens[:, :-1]), tokens[:, 1:]
            total = F.cross_entropy(
                scores.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum"
            )
            return total, (targets != PAD).sum()

        for _ in loop.epochs(2):
            for batch in batches:
                loop.step(batch, loss, optimizer)
            loop.evaluate(test, lambda tokens: {"nats_per_token": loss(tokens)}, collate=collate)


if __name__ == "__main__":
    main()
