"""A Hugging Face transformer learns to fill in masked letters, on one GPU.

It needs the package transformers.

python examples/side_by_side/transformer_one_gpu.py
"""

import random
from pydoc_data import topics

import torch
from ending import finish
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForMaskedLM

PAD, MASK, IGNORED = 0, 1, -100


def sentences(most: int) -> list[torch.Tensor]:
    """Return lines of Python's own help as bytes."""
    lines = [line.strip() for text in topics.topics.values() for line in text.splitlines()]
    kept = [line.encode("ascii", "ignore")[:40] for line in lines if len(line) > 10]
    return [torch.tensor(list(line)) for line in kept[:most]]


def collate(texts: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Pad the texts and hide some letters, at random."""
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
    random.seed(0)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    texts = sentences(300)
    order = torch.Generator().manual_seed(0)
    train = DataLoader(
        texts[:240], batch_size=32, shuffle=True, generator=order, collate_fn=collate
    )
    test = DataLoader(texts[240:], batch_size=32, collate_fn=collate)
    config = BertConfig(
        vocab_size=128,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        pad_token_id=PAD,
    )
    model = BertForMaskedLM(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(2):
        model.train()
        losses = []
        for batch in train:
            batch = {name: tensor.to(device) for name, tensor in batch.items()}
            loss = model(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        total = count = 0
        with torch.no_grad():
            for batch in test:
                batch = {name: tensor.to(device) for name, tensor in batch.items()}
                hidden = (batch["labels"] != IGNORED).sum().item()
                total += model(**batch).loss.item() * hidden
                count += hidden
    finish(sum(losses) / len(losses), model, nats_per_letter=total / count)


if __name__ == "__main__":
    main()
