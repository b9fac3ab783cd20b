import torch
import torch.nn as nn
from torch.utils.data import DataLoader, WeightedRandomSampler

try:
    from tqdm import tqdm
except ImportError:
    def tqdm(it, **kw):
        return it

from audio import LABELS, Clips, pad_collate
from net import GRUTagger
from utils import EarlyStopper, print_confusion, seed_everything

seed_everything(21)
use_cuda = torch.cuda.is_available()

train_ds = Clips(900, seed=1, spec_augment=True)
test_ds = Clips(300, seed=2)
counts = torch.bincount(torch.as_tensor(train_ds.labels), minlength=len(LABELS)).float()
weights = (1.0 / counts)[torch.as_tensor(train_ds.labels)]
sampler = WeightedRandomSampler(weights, num_samples=len(train_ds), replacement=True)
train_loader = DataLoader(train_ds, batch_size=40, sampler=sampler, collate_fn=pad_collate)
test_loader = DataLoader(test_ds, batch_size=60, collate_fn=pad_collate)

net = GRUTagger(24, len(LABELS))
crit = nn.CrossEntropyLoss()
if use_cuda:
    net.cuda()
    crit.cuda()

opt = torch.optim.RMSprop(net.parameters(), lr=2e-3)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode="max", factor=0.5, patience=1)
stop = EarlyStopper(patience=3, min_delta=0.002)


def run_epoch(loader, train):
    net.train(train)
    cm = torch.zeros(len(LABELS), len(LABELS), dtype=torch.long)
    tot = 0.0
    bar = tqdm(loader, desc="train" if train else "test ", leave=False, mininterval=1)
    for feats, lengths, y in bar:
        if use_cuda:
            feats, y = feats.cuda(non_blocking=True), y.cuda(non_blocking=True)
        with torch.set_grad_enabled(train):
            out = net(feats, lengths)
            loss = crit(out, y)
        if train:
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
        tot += loss.item() * y.size(0)
        for t, p in zip(y.tolist(), out.argmax(1).tolist()):
            cm[t, p] += 1
        if hasattr(bar, "set_postfix"):
            bar.set_postfix(loss=f"{loss.item():.3f}")
    recall = cm.diag().float() / cm.sum(1).clamp(min=1)
    return tot / cm.sum().item(), recall.mean().item(), cm


for epoch in range(10):
    tl, tu, _ = run_epoch(train_loader, True)
    vl, vu, cm = run_epoch(test_loader, False)
    plateau.step(vu)
    print(f"epoch {epoch}: train loss {tl:.4f} UAR {tu:.3f} | test loss {vl:.4f} UAR {vu:.3f} | lr {opt.param_groups[0]['lr']:.1e}")
    if vu >= stop.best:
        torch.save({"net": net.state_dict(), "uar": vu}, "tagger_best.pt")
    if stop(vu):
        print("no progress, stopping")
        break

net.load_state_dict(torch.load("tagger_best.pt")["net"])
_, uar, cm = run_epoch(test_loader, False)
print_confusion(cm, LABELS)
print(f"final UAR {uar:.4f}")
