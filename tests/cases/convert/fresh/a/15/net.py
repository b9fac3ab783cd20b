import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence


class GRUTagger(nn.Module):
    def __init__(self, n_mels, n_classes, hidden=48):
        super().__init__()
        self.norm = nn.LayerNorm(n_mels)
        self.gru = nn.GRU(n_mels, hidden, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.cls = nn.Linear(2 * hidden, n_classes)

    def forward(self, feats, lengths):
        packed = pack_padded_sequence(self.norm(feats), lengths.cpu(), batch_first=True)
        _, h = self.gru(packed)
        return self.cls(self.drop(torch.cat([h[0], h[1]], -1)))
