"""Neural collaborative filtering with the BPR loss."""
import csv

import numpy as np
import torch
import torch.nn.functional as F

from interactions import Interactions, NegativeSampler
from metrics import hit_ndcg
from models import NeuMF

SEED = 2024
EPOCHS = 6
BATCH = 256
N_NEG = 4
LR = 4e-3
REG = 1e-4

np.random.seed(SEED)
torch.manual_seed(SEED)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def bpr(scores):
    return -F.logsigmoid(scores[:, :1] - scores[:, 1:]).mean()


def run():
    data = Interactions()
    sampler = NegativeSampler(data, BATCH, N_NEG, np.random.default_rng(SEED))
    model = NeuMF(data.n_users, data.n_items).to(device)
    opt = torch.optim.Adam(model.parameters(), lr=LR, weight_decay=REG)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.85)
    print(f"{len(data)} interactions, {len(sampler)} batches per epoch, device {device}")

    hr, nd = hit_ndcg(model, data, device)
    print(f"before training: HR@10 {hr:.4f} NDCG@10 {nd:.4f}")
    best, best_state = -1.0, None
    with open("log.csv", "w", newline="") as fh:
        log = csv.writer(fh)
        log.writerow(["epoch", "loss", "hr", "ndcg"])
        for epoch in range(1, EPOCHS + 1):
            running, seen = 0.0, 0
            for users, pos, neg in sampler:
                u = torch.from_numpy(users).to(device)
                items = torch.from_numpy(np.concatenate([pos[:, None], neg], 1)).to(device)
                opt.zero_grad()
                loss = bpr(model(u, items))
                loss.backward()
                opt.step()
                running += loss.item() * len(u)
                seen += len(u)
            sched.step()
            hr, nd = hit_ndcg(model, data, device)
            print(f"epoch {epoch:02d}  bpr {running / seen:.4f}  HR@10 {hr:.4f}  NDCG@10 {nd:.4f}  lr {sched.get_last_lr()[0]:.5f}")
            log.writerow([epoch, running / seen, hr, nd])
            fh.flush()
            if nd > best:
                best = nd
                best_state = {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}
    model.load_state_dict(best_state)
    torch.save(best_state, "neumf.pt")
    print("best NDCG@10 %.4f" % best)


if __name__ == "__main__":
    run()
