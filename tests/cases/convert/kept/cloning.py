"""Behaviour cloning: learns from recorded steps, plays only to be measured."""

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

env = gym.make("CartPole-v1")
recorded = np.load("demonstrations.npz")
data = TensorDataset(torch.from_numpy(recorded["states"]), torch.from_numpy(recorded["actions"]))
loader = DataLoader(data, batch_size=256, shuffle=True)
policy = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(policy.parameters())


def play():
    state, _ = env.reset()
    total, done = 0.0, False
    while not done:
        with torch.no_grad():
            action = policy(torch.as_tensor(state)).argmax().item()
        state, reward, done, _, _ = env.step(action)
        total += reward
    return total


for epoch in range(50):
    for states, actions in loader:
        loss = nn.functional.cross_entropy(policy(states), actions)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, play())
