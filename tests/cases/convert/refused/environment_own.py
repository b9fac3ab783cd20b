# refused: environment
"""Advantage actor-critic in a world of our own."""

import numpy as np
import torch
from torch import nn


class GridWorld:
    def reset(self):
        self.at = np.zeros(2)
        return self.at

    def step(self, action):
        self.at = self.at + [(0, 1), (1, 0)][action]
        return self.at, -1.0, bool(self.at.sum() > 10)


class Agent:
    def __init__(self):
        self.net = nn.Linear(2, 3)
        self.optim = torch.optim.RMSprop(self.net.parameters(), lr=1e-3)

    def act(self, state):
        out = self.net(torch.as_tensor(state, dtype=torch.float32))
        dist = torch.distributions.Categorical(logits=out[:2])
        action = dist.sample()
        return action.item(), dist.log_prob(action), out[2]

    def learn(self, env, episodes):
        for episode in range(episodes):
            state, done = env.reset(), False
            history = []
            while not done:
                action, log_prob, value = self.act(state)
                state, reward, done = env.step(action)
                history.append((log_prob, value, reward))
            loss = sum(-lp * (r - v.detach()) + (r - v) ** 2 for lp, v, r in history)
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()


Agent().learn(GridWorld(), 500)
