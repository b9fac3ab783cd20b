"""Model-agnostic meta-learning on few-shot sinusoids (second order)."""
import argparse
import math
from collections import OrderedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call


class SineTask:
    def __init__(self, rng):
        self.amp, self.phase, self.rng = rng.uniform(0.5, 3.0), rng.uniform(0, math.pi), rng

    def sample(self, k, device):
        x = self.rng.uniform(-4, 4, (k, 1))
        y = self.amp * np.sin(x + self.phase)
        return (torch.tensor(x, dtype=torch.float32, device=device), torch.tensor(y, dtype=torch.float32, device=device))


def make_net(hidden=40):
    return nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))


def adapt(net, params, x, y, inner_lr, steps, create_graph):
    for _ in range(steps):
        loss = F.mse_loss(functional_call(net, params, (x,)), y)
        grads = torch.autograd.grad(loss, list(params.values()), create_graph=create_graph)
        params = OrderedDict((n, p - inner_lr * g) for (n, p), g in zip(params.items(), grads))
    return params


class MetaLearner:
    def __init__(self, args, device):
        self.args, self.device = args, device
        self.net = make_net().to(device)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=args.meta_lr)
        self.rng = np.random.default_rng(args.seed)

    def meta_step(self):
        a = self.args
        self.opt.zero_grad()
        total = 0.0
        for _ in range(a.tasks):
            task = SineTask(self.rng)
            xs, ys = task.sample(a.shots, self.device)
            xq, yq = task.sample(a.queries, self.device)
            fast = adapt(self.net, OrderedDict(self.net.named_parameters()), xs, ys, a.inner_lr, a.inner_steps, True)
            loss = F.mse_loss(functional_call(self.net, fast, (xq,)), yq)
            (loss / a.tasks).backward()
            total += loss.item() / a.tasks
        self.opt.step()
        return total

    def evaluate(self, n_tasks=50):
        rng = np.random.default_rng(999)
        before, after = [], []
        for _ in range(n_tasks):
            t = SineTask(rng)
            xs, ys = t.sample(self.args.shots, self.device)
            xq, yq = t.sample(50, self.device)
            p0 = OrderedDict((n, p.detach().clone().requires_grad_()) for n, p in self.net.named_parameters())
            p = adapt(self.net, p0, xs, ys, self.args.inner_lr, self.args.inner_steps, False)
            with torch.no_grad():
                before.append(F.mse_loss(self.net(xq), yq).item())
                after.append(F.mse_loss(functional_call(self.net, p, (xq,)), yq).item())
        return float(np.mean(before)), float(np.mean(after))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iterations", type=int, default=300)
    ap.add_argument("--tasks", type=int, default=8, help="tasks per meta-update")
    ap.add_argument("--shots", type=int, default=10)
    ap.add_argument("--queries", type=int, default=15)
    ap.add_argument("--inner-steps", type=int, default=2)
    ap.add_argument("--inner-lr", type=float, default=0.02)
    ap.add_argument("--meta-lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ml = MetaLearner(args, device)
    run = None
    for it in range(1, args.iterations + 1):
        loss = ml.meta_step()
        run = loss if run is None else 0.95 * run + 0.05 * loss
        if it % 75 == 0:
            b, a = ml.evaluate()
            print(f"iter {it:4d}  query loss (smoothed) {run:.4f}  test before {b:.4f} after {a:.4f}")
    torch.save(ml.net.state_dict(), "maml.pt")


if __name__ == "__main__":
    main()
