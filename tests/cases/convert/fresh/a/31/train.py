"""Neural operator for an advection-diffusion equation with physical penalties."""
import argparse
import json
import pathlib
import time

import torch
from torch.utils.data import DataLoader

from fno import FNO1d
from physics import PhysicsLoss, relative_l2
from solver import build

DEFAULTS = {
    "model": {"modes": 12, "width": 24, "depth": 3},
    "data": {"train": 800, "test": 200, "points": 64, "seed": 0},
    "optim": {"lr": 3e-3, "batch": 20, "epochs": 8, "weight_decay": 1e-5},
    "loss": {"w_mass": 1.0, "w_energy": 0.5},
}


def merge(base, extra):
    out = dict(base)
    for k, v in extra.items():
        out[k] = merge(base[k], v) if isinstance(v, dict) else v
    return out


class Experiment:
    def __init__(self, cfg, workdir):
        self.cfg = cfg
        self.workdir = pathlib.Path(workdir)
        self.workdir.mkdir(parents=True, exist_ok=True)
        (self.workdir / "config.json").write_text(json.dumps(cfg, indent=2))
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(cfg["data"]["seed"])
        d = cfg["data"]
        self.train_set = build(d["train"], d["points"], d["seed"])
        self.test_set = build(d["test"], d["points"], d["seed"] + 1)
        self.fine_set = build(d["test"] // 2, 2 * d["points"], d["seed"] + 2)      # unseen resolution
        self.model = FNO1d(**cfg["model"]).to(self.device)
        self.loss = PhysicsLoss(**cfg["loss"])
        o = cfg["optim"]
        self.loader = DataLoader(self.train_set, batch_size=o["batch"], shuffle=True)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=o["lr"], weight_decay=o["weight_decay"])
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.opt, o["lr"], total_steps=o["epochs"] * len(self.loader))
        self.epoch = 0
        self.latest = self.workdir / "latest.pt"

    def save(self):
        torch.save({"model": self.model.state_dict(), "opt": self.opt.state_dict(), "sched": self.sched.state_dict(),
                    "epoch": self.epoch, "rng": torch.get_rng_state()}, self.latest)

    def maybe_resume(self):
        if self.latest.exists():
            st = torch.load(self.latest, map_location=self.device)
            self.model.load_state_dict(st["model"])
            self.opt.load_state_dict(st["opt"])
            self.sched.load_state_dict(st["sched"])
            torch.set_rng_state(st["rng"].cpu())
            self.epoch = st["epoch"]
            print("continuing after epoch", self.epoch)

    @torch.no_grad()
    def error(self, dataset):
        self.model.eval()
        errs = [relative_l2(self.model(u0.to(self.device), p.to(self.device)), uT.to(self.device)) for u0, p, uT in DataLoader(dataset, batch_size=64)]
        return torch.cat(errs).mean().item()

    def run_epoch(self):
        self.model.train()
        sums = {}
        for u0, p, uT in self.loader:
            u0, p, uT = u0.to(self.device), p.to(self.device), uT.to(self.device)
            self.opt.zero_grad()
            loss, parts = self.loss(self.model(u0, p), u0, uT)
            loss.backward()
            self.opt.step()
            self.sched.step()
            for k, v in parts.items():
                sums[k] = sums.get(k, 0.0) + v.item() * len(u0)
        return {k: v / len(self.train_set) for k, v in sums.items()}

    def run(self):
        while self.epoch < self.cfg["optim"]["epochs"]:
            t0 = time.time()
            parts = self.run_epoch()
            self.epoch += 1
            line = {"epoch": self.epoch, **{k: round(v, 5) for k, v in parts.items()}, "test": round(self.error(self.test_set), 5),
                    "fine": round(self.error(self.fine_set), 5), "sec": round(time.time() - t0, 2)}
            print(line)
            with open(self.workdir / "log.jsonl", "a") as fh:
                fh.write(json.dumps(line) + "\n")
            self.save()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workdir", default="fno_run")
    ap.add_argument("--config", default=None, help="json file with overrides")
    ap.add_argument("--resume", action="store_true")
    a = ap.parse_args()
    cfg = DEFAULTS
    if a.config:
        cfg = merge(cfg, json.load(open(a.config)))
    exp = Experiment(cfg, a.workdir)
    if a.resume:
        exp.maybe_resume()
    exp.run()


if __name__ == "__main__":
    main()
