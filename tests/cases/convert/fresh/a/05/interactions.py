"""Synthetic implicit feedback: users and items live in a latent space, popular items are seen more often."""
import numpy as np


class Interactions:
    def __init__(self, n_users=400, n_items=250, per_user=14, dim=6, seed=11):
        rng = np.random.default_rng(seed)
        self.n_users, self.n_items = n_users, n_items
        u = rng.normal(size=(n_users, dim))
        v = rng.normal(size=(n_items, dim))
        pop = rng.gumbel(size=n_items) * 0.4
        score = 2.0 * u @ v.T / np.sqrt(dim) + pop
        score += rng.gumbel(size=score.shape) * 0.6
        top = np.argsort(-score, axis=1)[:, :per_user]
        self.test_item = np.empty(n_users, dtype=np.int64)
        self.seen = []
        users, items = [], []
        for i in range(n_users):
            row = rng.permutation(top[i])
            self.test_item[i] = row[0]
            self.seen.append(set(row.tolist()))
            users.extend([i] * (per_user - 1))
            items.extend(row[1:].tolist())
        self.users = np.asarray(users, dtype=np.int64)
        self.items = np.asarray(items, dtype=np.int64)

    def __len__(self):
        return len(self.users)


class NegativeSampler:
    """Iterates over shuffled (user, pos, negs) arrays without a DataLoader."""

    def __init__(self, data, batch_size, n_neg, rng):
        self.data, self.batch_size, self.n_neg, self.rng = data, batch_size, n_neg, rng

    def __len__(self):
        return -(-len(self.data) // self.batch_size)

    def draw_negatives(self, users):
        neg = self.rng.integers(self.data.n_items, size=(len(users), self.n_neg))
        for r, u in enumerate(users):
            seen = self.data.seen[u]
            for c in range(self.n_neg):
                while neg[r, c] in seen:
                    neg[r, c] = self.rng.integers(self.data.n_items)
        return neg

    def __iter__(self):
        order = self.rng.permutation(len(self.data))
        for s in range(0, len(order), self.batch_size):
            idx = order[s:s + self.batch_size]
            u = self.data.users[idx]
            yield u, self.data.items[idx], self.draw_negatives(u)
