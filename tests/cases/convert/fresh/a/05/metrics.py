import numpy as np
import torch


@torch.no_grad()
def hit_ndcg(model, data, device, k=10, n_candidates=99, seed=5, chunk=128):
    """Leave-one-out evaluation with sampled candidates."""
    rng = np.random.default_rng(seed)
    cand = np.empty((data.n_users, n_candidates + 1), dtype=np.int64)
    for u in range(data.n_users):
        pool = np.setdiff1d(np.arange(data.n_items), np.fromiter(data.seen[u], dtype=np.int64))
        cand[u, 0] = data.test_item[u]
        cand[u, 1:] = rng.choice(pool, n_candidates, replace=False)
    model.eval()
    hits, ndcg = [], []
    for s in range(0, data.n_users, chunk):
        users = torch.arange(s, min(s + chunk, data.n_users), device=device)
        items = torch.as_tensor(cand[s:s + chunk], device=device)
        sc = model(users, items)
        rank = (sc[:, 1:] >= sc[:, :1]).sum(1)
        hits += (rank < k).float().tolist()
        ndcg += torch.where(rank < k, 1 / torch.log2(rank.float() + 2), torch.zeros_like(rank.float())).tolist()
    model.train()
    return float(np.mean(hits)), float(np.mean(ndcg))
