"""Offline data from a noisy controller on a point-mass task (reach the origin)."""
import numpy as np
import torch


class PointMass:
    obs_dim, act_dim, horizon = 4, 2, 40

    def reset(self, rng, n):
        return np.concatenate([rng.uniform(-1, 1, (n, 2)), np.zeros((n, 2))], 1)

    def step(self, s, a):
        a = np.clip(a, -1, 1)
        v = 0.9 * s[:, 2:] + 0.1 * a
        x = s[:, :2] + 0.5 * v
        s2 = np.concatenate([x, v], 1)
        r = -np.linalg.norm(x, axis=1) - 0.05 * (a ** 2).sum(1)
        return s2, r


def expert(s, gain=2.0):
    return np.clip(-gain * s[:, :2] - 3.0 * s[:, 2:], -1, 1)


def collect(env, episodes, seed, quality=0.5):
    rng = np.random.default_rng(seed)
    buf = {k: [] for k in ("obs", "act", "rew", "next", "done")}
    s = env.reset(rng, episodes)
    skill = rng.uniform(0, 2 * quality, (episodes, 1)).clip(0, 1)
    for t in range(env.horizon):
        a = np.clip(skill * expert(s) + (1 - skill) * rng.uniform(-1, 1, (episodes, 2)) + rng.normal(0, .1, (episodes, 2)), -1, 1)
        s2, r = env.step(s, a)
        done = np.zeros(episodes)
        for k, v in zip(buf, (s, a, r, s2, done)):
            buf[k].append(v)
        s = s2
    return {k: torch.tensor(np.concatenate(v), dtype=torch.float32) for k, v in buf.items()}


def rollout(env, policy, episodes=32, seed=123):
    rng = np.random.default_rng(seed)
    s = env.reset(rng, episodes)
    total = np.zeros(episodes)
    for _ in range(env.horizon):
        s, r = env.step(s, policy(s))
        total += r
    return total.mean(), total.std()
