"""A Hugging Face data set, streamed and shuffled, with a tokenizer that runs where it is needed.

It needs the package datasets. Here the rows are made up; `load_dataset(..., streaming=True)` gives
the same kind of stream.

python examples/loop/hub_data.py
lockstep train examples/loop/hub_data.py --replicas 2 --workers 1 --out runs/hub-data
"""

import datasets
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

import lockstep

WORDS = ("the", "a", "red", "blue", "cat", "dog", "bird", "runs", "sleeps", "sings", "fast")


def rows() -> list[dict]:
    """Return sentences and whether they speak of a cat."""
    sentences = [" ".join(WORDS[(n * k + k) % 11] for k in range(2, 4 + n % 6)) for n in range(250)]
    return [{"text": text, "label": int("cat" in text)} for text in sentences]


def tokenized(row: dict) -> dict:
    """Turn words into numbers: called only for the samples of this replica."""
    return {"ids": torch.tensor([WORDS.index(w) + 1 for w in row["text"].split()]), **row}


def collate(samples: list[dict]) -> dict[str, torch.Tensor]:
    """Pad the sentences of a batch."""
    return {
        "ids": pad_sequence([s["ids"] for s in samples], batch_first=True),
        "label": torch.tensor([s["label"] for s in samples]),
    }


def main() -> None:
    """Train for two epochs; each has its own order, which comes from the seed and the epoch."""
    stream = datasets.Dataset.from_list(rows()).to_iterable_dataset(num_shards=4)
    stream = stream.shuffle(seed=0, buffer_size=50)
    with lockstep.Loop(global_batch=32, exact=True) as loop:
        model = loop.model(nn.Sequential(nn.EmbeddingBag(12, 16, padding_idx=0), nn.Linear(16, 2)))
        optimizer = loop.optimizer(torch.optim.Adam(model.parameters(), lr=2e-2))
        batches = loop.batches(stream, transform=tokenized, collate=collate)

        def loss(batch):
            scores = model(batch["ids"])
            right = (scores.argmax(1) == batch["label"]).sum()
            total = F.cross_entropy(scores, batch["label"], reduction="sum")
            return total, len(scores), {"accuracy": right}

        for epoch in loop.epochs(2):
            for batch in batches:
                loop.step(batch, loss, optimizer)
            loop.say(f"epoch {epoch}: training accuracy {loop.logged['accuracy']:.3f}")


if __name__ == "__main__":
    main()
