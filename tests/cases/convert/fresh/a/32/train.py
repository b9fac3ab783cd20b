import argparse
import csv
import random

import numpy as np
import torch

from dataset import PointMass, collect, expert, rollout
from iql import ImplicitQLearning
from networks import GaussianPolicy, TwinQ, ValueFunction


def sample_batch(data, n):
    idx = torch.randint(len(data["rew"]), (n,), device=data["rew"].device)
    return [data[k][idx] for k in ("obs", "act", "next", "rew", "done")]


def main(args):
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    random.seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    env = PointMass()
    data = {k: v.to(device) for k, v in collect(env, args.episodes, args.seed).items()}
    data["rew"] = (data["rew"] - data["rew"].mean()) / data["rew"].std()
    print(f"{len(data['rew'])} transitions")

    policy = GaussianPolicy(env.obs_dim, env.act_dim).to(device)
    iql = ImplicitQLearning(
        qf=TwinQ(env.obs_dim, env.act_dim).to(device),
        vf=ValueFunction(env.obs_dim).to(device),
        policy=policy,
        optimizer_factory=lambda params: torch.optim.Adam(params, lr=args.learning_rate),
        max_steps=args.n_steps,
    )
    ref = rollout(env, expert)
    rnd = rollout(env, lambda s: np.random.uniform(-1, 1, (len(s), 2)))
    print(f"expert {ref[0]:.2f}, random {rnd[0]:.2f}")

    with open("iql.csv", "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["step", "v", "q", "pi", "return"])
        mean = {"v": 0.0, "q": 0.0, "pi": 0.0}
        for step in range(args.n_steps):
            out = iql.update(*sample_batch(data, args.batch_size))
            for k in mean:
                mean[k] += out[k] / args.eval_period
            if (step + 1) % args.eval_period == 0:
                policy.eval()
                ret, sd = rollout(env, lambda s: policy.act(s, device))
                policy.train()
                norm = 100 * (ret - rnd[0]) / (ref[0] - rnd[0])
                print(f"step {step + 1:5d}  " + "  ".join(f"{k} {v:.4f}" for k, v in mean.items()) + f"  return {ret:.2f} +- {sd:.2f}  normalised {norm:.1f}")
                w.writerow([step + 1, *(f"{v:.5f}" for v in mean.values()), f"{ret:.3f}"])
                mean = dict.fromkeys(mean, 0.0)
    torch.save(iql.state_dict(), "final.pt")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--episodes", type=int, default=50)
    p.add_argument("--n-steps", type=int, default=1000)
    p.add_argument("--batch-size", type=int, default=256)
    p.add_argument("--learning-rate", type=float, default=1e-3)
    p.add_argument("--eval-period", type=int, default=200)
    main(p.parse_args())
