"""A small text classifier."""

from torch import nn


class Classifier(nn.Module):
    """Embedding, dropout and a linear layer."""

    def __init__(self, words, classes):
        super().__init__()
        self.embedding = nn.EmbeddingBag(words, 256)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(256, classes)

    def forward(self, tokens):
        return self.head(self.dropout(self.embedding(tokens)))
