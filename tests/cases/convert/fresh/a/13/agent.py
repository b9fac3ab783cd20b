import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple("Transition", "s a r s2 done")


class ReplayBuffer:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, n):
        batch = Transition(*zip(*random.sample(self.memory, n)))
        return (torch.from_numpy(np.stack(batch.s)), torch.tensor(batch.a), torch.tensor(batch.r),
                torch.from_numpy(np.stack(batch.s2)), torch.tensor(batch.done, dtype=torch.float32))

    def __len__(self):
        return len(self.memory)


class DuelingQ(nn.Module):
    def __init__(self, n_obs, n_act, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_obs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.v, self.a = nn.Linear(hidden, 1), nn.Linear(hidden, n_act)

    def forward(self, x):
        h = self.body(x)
        adv = self.a(h)
        return self.v(h) + adv - adv.mean(1, keepdim=True)


class DQNAgent:
    def __init__(self, n_obs, n_act, device, gamma=0.99, lr=1e-3, tau=0.01):
        self.q = DuelingQ(n_obs, n_act).to(device)
        self.target = DuelingQ(n_obs, n_act).to(device)
        self.target.load_state_dict(self.q.state_dict())
        self.opt = torch.optim.AdamW(self.q.parameters(), lr=lr, amsgrad=True)
        self.device, self.gamma, self.tau, self.n_act = device, gamma, tau, n_act

    def act(self, s, eps):
        if random.random() < eps:
            return random.randrange(self.n_act)
        with torch.no_grad():
            return self.q(torch.from_numpy(s).unsqueeze(0).to(self.device)).argmax(1).item()

    def learn(self, batch):
        s, a, r, s2, d = (t.to(self.device) for t in batch)
        q = self.q(s).gather(1, a[:, None]).squeeze(1)
        with torch.no_grad():                                   # double DQN
            best = self.q(s2).argmax(1, keepdim=True)
            y = r + self.gamma * (1 - d) * self.target(s2).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(q, y)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(self.q.parameters(), 100)
        self.opt.step()
        with torch.no_grad():
            for pt, p in zip(self.target.parameters(), self.q.parameters()):
                pt.mul_(1 - self.tau).add_(p, alpha=self.tau)
        return loss.item()
