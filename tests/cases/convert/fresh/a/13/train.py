import argparse
import json
import math
import random

import numpy as np
import torch

from agent import DQNAgent, ReplayBuffer
from env import CartPole

ap = argparse.ArgumentParser()
ap.add_argument("--episodes", type=int, default=70)
ap.add_argument("--batch", type=int, default=64)
ap.add_argument("--capacity", type=int, default=10000)
ap.add_argument("--eps-start", type=float, default=0.9)
ap.add_argument("--eps-end", type=float, default=0.03)
ap.add_argument("--eps-decay", type=float, default=400)
ap.add_argument("--seed", type=int, default=0)
opt = ap.parse_args()

random.seed(opt.seed); np.random.seed(opt.seed); torch.manual_seed(opt.seed)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
env = CartPole(opt.seed)
agent = DQNAgent(env.n_obs, env.n_actions, device)
memory = ReplayBuffer(opt.capacity)

returns, steps, last_loss = [], 0, float("nan")
for ep in range(opt.episodes):
    s, total = env.reset(), 0.0
    while True:
        eps = opt.eps_end + (opt.eps_start - opt.eps_end) * math.exp(-steps / opt.eps_decay)
        a = agent.act(s, eps)
        s2, r, dead, timeout = env.step(a)
        memory.push(s, a, r, s2, dead)
        s, total, steps = s2, total + r, steps + 1
        if len(memory) >= opt.batch:
            last_loss = agent.learn(memory.sample(opt.batch))
        if dead or timeout:
            break
    returns.append(total)
    if (ep + 1) % 10 == 0:
        print(f"episode {ep + 1:3d}  steps {steps:5d}  eps {eps:.3f}  return(10) {np.mean(returns[-10:]):6.1f}  loss {last_loss:.4f}")
    if np.mean(returns[-10:]) > 180:
        print("solved")
        break

with open("returns.json", "w") as f:
    json.dump(returns, f)
torch.save(agent.q.state_dict(), "dqn.pt")
greedy = []
for k in range(5):
    s, tot = env.reset(), 0
    done = False
    while not done:
        s, r, dead, timeout = env.step(agent.act(s, 0.0))
        tot += r
        done = dead or timeout
    greedy.append(tot)
print("greedy evaluation:", greedy)
