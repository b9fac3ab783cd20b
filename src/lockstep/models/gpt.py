"""A decoder-only transformer (GPT-2's shape: Radford et al. 2019)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Attention, then two dense layers, each beside a shortcut."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        # Dropout follows only the projections: the attention kernel cannot key its randomness per
        # shard.
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Mix along the sequence, then along the channels."""
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.attention(self.norm1(x)).view(shape).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(batch, length, width)
        x = x + self.dropout(self.project(mixed))
        hidden = functional.gelu(self.widen(self.norm2(x)), approximate="tanh")
        return x + self.dropout(self.narrow(hidden))


class GPT(nn.Module):
    """A model that scores the next token."""

    def __init__(
        self, layers: int, width: int, heads: int, vocabulary: int, length: int, dropout: float
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} does not cut into {heads} heads")
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                continue
            # The more paths add to the residual stream, the smaller they start.
            residual = name.endswith(("project.weight", "narrow.weight"))
            std = 0.02 / math.sqrt(2 * layers) if residual else 0.02
            nn.init.normal_(parameter, std=std)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        """Turn (batch, length) tokens into (batch, length, vocabulary) scores."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.tokens(tokens) + self.positions(places))
        return self.head(self.norm(self.blocks(x)))


def gpt(
    layers: int = 4,
    width: int = 128,
    heads: int | None = None,
    vocabulary: int = 256,
    length: int = 128,
    dropout: float = 0.0,
) -> nn.Module:
    """Build a GPT with `layers` blocks of `width` channels.

    By default a head has 64 channels, or 32 if `width` is below 256.

    >>> sum(p.numel() for p in gpt(12, 768, vocabulary=50257, length=1024).parameters())
    124439808
    """
    if heads is None:
        heads = max(1, width // (64 if width >= 256 else 32))
    return GPT(layers, width, heads, vocabulary, length, dropout)
