import random

import torch
import torch.nn as nn

from dates import BOS, IN_CHARS, OUT_CHARS, OUT_LEN, PAD


class Encoder(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.emb = nn.Embedding(len(IN_CHARS) + 1, d, padding_idx=PAD)
        self.rnn = nn.GRU(d, d, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * d, d)

    def forward(self, src):
        out, h = self.rnn(self.emb(src))
        return out, torch.tanh(self.bridge(torch.cat([h[0], h[1]], 1)))


class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Linear(3 * d, d)
        self.v = nn.Linear(d, 1, bias=False)

    def forward(self, state, memory, mask):
        s = state.unsqueeze(1).expand(-1, memory.size(1), -1)
        e = self.v(torch.tanh(self.w(torch.cat([s, memory], 2)))).squeeze(2)
        a = torch.softmax(e.masked_fill(mask, -1e9), 1)
        return torch.bmm(a.unsqueeze(1), memory).squeeze(1)


class Decoder(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.emb = nn.Embedding(len(OUT_CHARS) + 1, d)
        self.attn = Attention(d)
        self.cell = nn.GRUCell(3 * d, d)
        self.out = nn.Linear(3 * d, len(OUT_CHARS))

    def forward(self, token, state, memory, mask):
        ctx = self.attn(state, memory, mask)
        state = self.cell(torch.cat([self.emb(token), ctx], 1), state)
        return self.out(torch.cat([state, ctx], 1)), state


class Seq2Seq(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.encoder, self.decoder = Encoder(d), Decoder(d)

    def forward(self, src, tgt=None, teacher_forcing=0.0):
        memory, state = self.encoder(src)
        mask = src == PAD
        token = src.new_full((src.size(0),), BOS)
        logits = []
        for t in range(OUT_LEN):
            step, state = self.decoder(token, state, memory, mask)
            logits.append(step)
            if tgt is not None and random.random() < teacher_forcing:
                token = tgt[:, t]
            else:
                token = step.argmax(1)
        return torch.stack(logits, 1)
