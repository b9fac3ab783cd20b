# refused: environment, replay_buffer
import random
from collections import deque, namedtuple

import gymnasium as gym
import torch
import torch.nn as nn
import torch.optim as optim

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


env = gym.make("CartPole-v1")
policy_net = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2))
target_net = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2))
optimizer = optim.AdamW(policy_net.parameters(), lr=1e-4)
memory = ReplayMemory(10000)


def optimize_model():
    if len(memory) < 128:
        return
    batch = Transition(*zip(*memory.sample(128)))
    state = torch.cat(batch.state)
    q = policy_net(state).gather(1, torch.cat(batch.action))
    with torch.no_grad():
        target = torch.cat(batch.reward) + 0.99 * target_net(torch.cat(batch.next_state)).max(1)[0]
    loss = nn.SmoothL1Loss()(q, target.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


for episode in range(600):
    state, _ = env.reset()
    state = torch.tensor(state).unsqueeze(0)
    done = False
    while not done:
        action = torch.tensor([[env.action_space.sample()]])
        observation, reward, done, truncated, _ = env.step(action.item())
        following = torch.tensor(observation).unsqueeze(0)
        memory.push(state, action, following, torch.tensor([reward]))
        state = following
        optimize_model()
    target_net.load_state_dict(policy_net.state_dict())
