"""Turns a sequence of digits around, with teacher forcing."""
import random
import time

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset

SEED = 1111
random.seed(SEED)
torch.manual_seed(SEED)

PAD, SOS, EOS = 0, 1, 2
VOCAB = 8
MAX_LEN = 5
teacher_forcing_ratio = 0.5

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Reversal(Dataset):
    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.pairs = []
        for _ in range(n):
            s = [rng.randrange(3, VOCAB) for _ in range(rng.randint(2, MAX_LEN))]
            fill = [PAD] * (MAX_LEN - len(s))
            self.pairs.append((torch.tensor(s + [EOS] + fill), torch.tensor(s[::-1] + [EOS] + fill)))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return self.pairs[i]


class Encoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, hidden)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)

    def forward(self, src):
        return self.gru(self.embedding(src))


class Decoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, hidden)
        self.gru = nn.GRU(2 * hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, VOCAB)

    def forward(self, token, hidden, memory):
        scores = memory @ hidden[-1].unsqueeze(2)
        context = (torch.softmax(scores, 1) * memory).sum(1, keepdim=True)
        output, hidden = self.gru(torch.cat([self.embedding(token), context], 2), hidden)
        return self.out(output.squeeze(1)), hidden


class Seq2Seq(nn.Module):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, src, trg, teacher_forcing):
        memory, hidden = self.encoder(src)
        token = torch.full((src.size(0), 1), SOS, device=src.device)
        outputs = []
        for t in range(trg.size(1)):
            logits, hidden = self.decoder(token, hidden, memory)
            outputs.append(logits)
            token = trg[:, t:t + 1] if teacher_forcing else logits.argmax(1, keepdim=True)
        return torch.stack(outputs, dim=1)


def epoch_time(start, end):
    return int((end - start) / 60), int((end - start) % 60)


def train(model, iterator, optimizer, criterion, clip):
    model.train()
    epoch_loss = 0
    for src, trg in iterator:
        src, trg = src.to(device), trg.to(device)
        use_teacher = True if random.random() < teacher_forcing_ratio else False
        optimizer.zero_grad()
        output = model(src, trg, use_teacher)
        loss = criterion(output.view(-1, VOCAB), trg.view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        epoch_loss += loss.item()
    return epoch_loss / len(iterator)


def evaluate(model, iterator, criterion):
    model.eval()
    epoch_loss = 0
    whole = 0
    with torch.no_grad():
        for src, trg in iterator:
            src, trg = src.to(device), trg.to(device)
            output = model(src, trg, False)
            epoch_loss += criterion(output.view(-1, VOCAB), trg.view(-1)).item()
            guess = output.argmax(2)
            whole += ((guess == trg) | (trg == PAD)).all(dim=1).sum().item()
    return epoch_loss / len(iterator), whole / len(iterator.dataset)


train_iterator = DataLoader(Reversal(768, 0), batch_size=32, shuffle=True)
valid_iterator = DataLoader(Reversal(128, 1), batch_size=32)

model = Seq2Seq(Encoder(48), Decoder(48)).to(device)
optimizer = optim.Adam(model.parameters(), lr=5e-3)
# padding has no part in the mean
criterion = nn.CrossEntropyLoss(ignore_index=PAD)

N_EPOCHS = 8
best_valid_loss = float('inf')

for epoch in range(N_EPOCHS):
    start_time = time.time()
    train_loss = train(model, train_iterator, optimizer, criterion, clip=1)
    valid_loss, exact = evaluate(model, valid_iterator, criterion)
    mins, secs = epoch_time(start_time, time.time())
    if valid_loss < best_valid_loss:
        best_valid_loss = valid_loss
        torch.save(model.state_dict(), 'reversal.pt')
    print(f'Epoch {epoch + 1:02} ({mins}m {secs}s)')
    print(f'\ttrain loss {train_loss:.4f}')
    print(f'\tvalid loss {valid_loss:.4f}, whole sequences right {exact:.3f}')

model.load_state_dict(torch.load('reversal.pt'))
print('best:', '%.4f %.3f' % evaluate(model, valid_iterator, criterion))
