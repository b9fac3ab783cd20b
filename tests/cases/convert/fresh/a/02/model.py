import torch
import torch.nn as nn


class RNNModel(nn.Module):
    """Encoder, recurrent core, decoder; optionally with tied weights."""

    def __init__(self, rnn_type, ntoken, ninp, nhid, nlayers, tie_weights=False):
        super().__init__()
        self.rnn_type, self.nhid, self.nlayers = rnn_type, nhid, nlayers
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = getattr(nn, rnn_type)(ninp, nhid, nlayers)
        self.decoder = nn.Linear(nhid, ntoken)
        if tie_weights:
            if nhid != ninp:
                raise ValueError("when tying weights nhid must equal emsize")
            self.decoder.weight = self.encoder.weight
        self.init_weights()

    def init_weights(self):
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        h = weight.new_zeros(self.nlayers, bsz, self.nhid)
        if self.rnn_type == "LSTM":
            return h, weight.new_zeros(self.nlayers, bsz, self.nhid)
        return h

    def forward(self, tokens, hidden):
        out, hidden = self.rnn(self.encoder(tokens), hidden)
        logits = self.decoder(out)
        return logits.view(-1, logits.size(-1)), hidden


@torch.no_grad()
def sample(model, corpus, n, device, prompt="the ", temperature=0.8):
    model.eval()
    hidden = model.init_hidden(1)
    ids = corpus.encode(prompt).to(device)
    text = prompt
    inp = ids.unsqueeze(1)
    for _ in range(n):
        logits, hidden = model(inp, hidden)
        p = torch.softmax(logits[-1] / temperature, -1)
        nxt = torch.multinomial(p, 1)
        text += corpus.decode(nxt.tolist())
        inp = nxt.unsqueeze(1)
    return text
