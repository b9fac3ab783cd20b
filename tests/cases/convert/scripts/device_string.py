import random
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader
from torch.nn.utils.rnn import pad_sequence

device = 'cuda:0' if torch.cuda.is_available() else 'cpu'
BATCH_SIZE = 24
torch.manual_seed(6)

# ---------- data: is there more of the word good or of the word bad? -----------
FILLER = ["film", "plot", "the", "a", "was", "scene", "music", "actor"]
VOCAB = {w: i + 1 for i, w in enumerate(FILLER + ["good", "bad"])}


def make_reviews(count, seed):
    rng = random.Random(seed)
    reviews = []
    for _ in range(count):
        words = rng.choices(FILLER, k=rng.randint(4, 14))
        good, bad = rng.sample(range(0, 4), 2)
        words += ["good"] * good + ["bad"] * bad
        rng.shuffle(words)
        reviews.append((words, int(good > bad)))
    return reviews


class Reviews(Dataset):
    def __init__(self, reviews):
        self.reviews = reviews

    def __len__(self):
        return len(self.reviews)

    def __getitem__(self, i):
        words, label = self.reviews[i]
        return torch.tensor([VOCAB[w] for w in words]), label


def collate(batch):
    texts, labels = zip(*batch)
    return pad_sequence(texts, batch_first=True), torch.tensor(labels, dtype=torch.float)


train_dl = DataLoader(Reviews(make_reviews(480, 1)), batch_size=BATCH_SIZE, shuffle=True, collate_fn=collate)
valid_dl = DataLoader(Reviews(make_reviews(240, 2)), batch_size=BATCH_SIZE, collate_fn=collate)


class Sentiment(nn.Module):
    def __init__(self, vocab, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.gru = nn.GRU(dim, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        lengths = (x > 0).sum(1)
        states, _ = self.gru(self.embed(x))
        last = states[torch.arange(len(x), device=x.device), lengths - 1]
        return self.out(last).squeeze(1)


net = Sentiment(len(VOCAB) + 1).to(device)
lossf = nn.BCEWithLogitsLoss()
opt = torch.optim.Adam(net.parameters(), lr=0.01)


def accuracy(dl):
    net.eval()
    hits = []
    with torch.no_grad():
        for xb, yb in dl:
            xb = xb.to(device); yb = yb.to(device)
            hits.append(((net(xb) > 0).float() == yb).float().mean().item())
    net.train()
    return sum(hits) / len(hits)


for epoch in range(5):
    for step, (xb, yb) in enumerate(train_dl):
        xb = xb.to(device); yb = yb.to(device)
        loss = lossf(net(xb), yb)
        opt.zero_grad(); loss.backward(); opt.step()
    print("epoch", epoch, "loss", round(loss.item(), 4), "train", round(accuracy(train_dl), 4),
          "valid", round(accuracy(valid_dl), 4))

torch.save(net, 'sentiment.pth')
net = torch.load('sentiment.pth', weights_only=False)
print("read back:", round(accuracy(valid_dl), 4))
