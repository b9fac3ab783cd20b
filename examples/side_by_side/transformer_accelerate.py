"""A Hugging Face transformer learns to fill in masked letters, with Accelerate.

It needs the package transformers. `split_batches=True` keeps the global batch on any number of
processes.

python examples/side_by_side/transformer_accelerate.py
torchrun --nproc-per-node 2 examples/side_by_side/transformer_accelerate.py
"""

import random
from pydoc_data import topics

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from ending import finish
from torch.nn import functional as F
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
    loading = DataLoaderConfiguration(split_batches=True)
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), dataloader_config=loading)
    set_seed(0)
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
    model = BertForMaskedLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)
    for _ in range(2):
        model.train()
        losses = []
        for batch in train:
            loss = model(**batch).loss
            optimizer.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(accelerator.gather(loss.detach()).mean().item())
        model.eval()
        total = count = 0
        with torch.no_grad():
            for batch in test:
                scores, labels = model(**batch).logits, batch["labels"]
                lost = F.cross_entropy(scores.transpose(1, 2), labels, reduction="none").sum(1)
                hidden = (labels != IGNORED).sum(1)
                lost, hidden = accelerator.gather_for_metrics((lost, hidden))
                total += lost.sum().item()
                count += hidden.sum().item()
    model = accelerator.unwrap_model(model)
    finish(sum(losses) / len(losses), model, nats_per_letter=total / count)
    accelerator.end_training()


if __name__ == "__main__":
    main()
