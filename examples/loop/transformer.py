"""A Hugging Face transformer learns to fill in masked letters, from random weights.

It needs the package transformers. Batches are dicts, a collate function pads and masks, and the
loss is a mean over the masked letters, of which every shard has a different number.

python examples/loop/transformer.py
lockstep train examples/loop/transformer.py --replicas 2 --out runs/transformer
"""

import random
from pydoc_data import topics

import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import BertConfig, BertForMaskedLM

import lockstep

PAD, MASK, IGNORED = 0, 1, -100


def sentences(most: int) -> list[torch.Tensor]:
    """Return lines of Python's own help as bytes."""
    lines = [line.strip() for text in topics.topics.values() for line in text.splitlines()]
    kept = [line.encode("ascii", "ignore")[:40] for line in lines if len(line) > 10]
    return [torch.tensor(list(line)) for line in kept[:most]]


def collate(texts: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Pad the texts and hide some letters, at random: lockstep seeds `random` for each shard."""
    inputs, labels = [], []
    for text in texts:
        hidden = torch.tensor([random.random() < 0.15 for _ in text])
        inputs.append(torch.where(hidden, MASK, text))
        labels.append(torch.where(hidden, text, IGNORED))
    tokens = pad_sequence(inputs, batch_first=True, padding_value=PAD)
    return {
        "input_ids": tokens,
        "attention_mask": (tokens != PAD).long(),
        "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED),
    }


def main() -> None:
    """Train for two epochs."""
    texts = sentences(300)
    train, test = texts[:240], texts[240:]
    config = BertConfig(
        vocab_size=128,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        pad_token_id=PAD,
    )
    with lockstep.Loop(global_batch=32, exact=True) as loop:
        model = loop.model(BertForMaskedLM(config))
        optimizer = loop.optimizer(torch.optim.AdamW(model.parameters(), lr=2e-3), clip=1.0)
        batches = loop.batches(train, collate=collate)

        def loss(batch):
            # Not batch["labels"] into the model: it would return a mean without its count.
            labels = batch["labels"]
            scores = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
            total = F.cross_entropy(scores.logits.flatten(0, 1), labels.flatten(), reduction="sum")
            return total, (labels != IGNORED).sum()

        for _ in loop.epochs(2):
            for batch in batches:
                loop.step(batch, loss, optimizer)
            loop.evaluate(test, lambda batch: {"nats_per_letter": loss(batch)}, collate=collate)


if __name__ == "__main__":
    main()
