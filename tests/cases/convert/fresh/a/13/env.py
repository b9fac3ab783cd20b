import numpy as np


class CartPole:
    """Cart-pole with the usual constants, no gym needed."""
    n_obs, n_actions = 4, 2

    def __init__(self, seed=0, max_steps=200):
        self.rng = np.random.default_rng(seed)
        self.max_steps = max_steps

    def reset(self):
        self.s = self.rng.uniform(-0.05, 0.05, 4)
        self.t = 0
        return self.s.astype(np.float32)

    def step(self, action):
        x, xd, th, thd = self.s
        force = 10.0 if action == 1 else -10.0
        c, s = np.cos(th), np.sin(th)
        tmp = (force + 0.05 * thd ** 2 * s) / 1.1
        thacc = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c ** 2 / 1.1))
        xacc = tmp - 0.05 * thacc * c / 1.1
        self.s = self.s + 0.02 * np.array([xd, xacc, thd, thacc])
        self.t += 1
        dead = abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.2095
        return self.s.astype(np.float32), 1.0, bool(dead), self.t >= self.max_steps
