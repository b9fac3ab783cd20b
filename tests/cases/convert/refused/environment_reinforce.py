# refused: environment
import argparse
from itertools import count

import gym
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

parser = argparse.ArgumentParser()
parser.add_argument("--gamma", type=float, default=0.99)
args = parser.parse_args()
env = gym.make("CartPole-v1")


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(4, 128)
        self.out = nn.Linear(128, 2)
        self.log_probs = []
        self.rewards = []

    def forward(self, x):
        return F.softmax(self.out(F.relu(self.hidden(x))), dim=1)


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)


def select_action(state):
    m = Categorical(policy(torch.from_numpy(state).float().unsqueeze(0)))
    action = m.sample()
    policy.log_probs.append(m.log_prob(action))
    return action.item()


def finish_episode():
    total, returns = 0, []
    for r in policy.rewards[::-1]:
        total = r + args.gamma * total
        returns.insert(0, total)
    returns = torch.tensor(returns)
    loss = torch.cat([-p * r for p, r in zip(policy.log_probs, returns)]).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    del policy.rewards[:], policy.log_probs[:]


def main():
    for episode in count(1):
        state, _ = env.reset()
        for t in range(1, 10000):
            state, reward, done, _, _ = env.step(select_action(state))
            policy.rewards.append(reward)
            if done:
                break
        finish_episode()


if __name__ == "__main__":
    main()
