import copy
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from shapes import save_grid


def cycle(dl):
    while True:
        for data in dl:
            yield data


class EMA:
    def __init__(self, model, decay, every):
        self.ema_model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay, self.every, self.step = decay, every, 0

    def update(self, model):
        self.step += 1
        if self.step % self.every:
            return
        with torch.no_grad():
            for pe, p in zip(self.ema_model.parameters(), model.parameters()):
                pe.lerp_(p, 1 - self.decay)
            for be, b in zip(self.ema_model.buffers(), model.buffers()):
                be.copy_(b)


class Trainer:
    def __init__(self, diffusion, dataset, cfg):
        self.cfg = cfg
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = diffusion.to(self.device)
        self.dl = cycle(DataLoader(dataset, batch_size=cfg.batch_size, shuffle=True,
                                   pin_memory=self.device.type == "cuda"))
        self.opt = torch.optim.Adam(self.model.parameters(), lr=cfg.lr, betas=(0.9, 0.99))
        self.ema = EMA(self.model, cfg.ema_decay, cfg.ema_update_every)
        self.amp = cfg.amp and self.device.type == "cuda"
        self.scaler = torch.amp.GradScaler(enabled=self.amp)
        self.folder = Path(cfg.results_folder)
        self.folder.mkdir(exist_ok=True, parents=True)
        self.step = 0

    def save(self, milestone):
        torch.save({"step": self.step, "model": self.model.state_dict(), "opt": self.opt.state_dict(),
                    "ema": self.ema.ema_model.state_dict(), "scaler": self.scaler.state_dict(),
                    "config": self.cfg.dict()}, self.folder / f"model-{milestone}.pt")

    def load(self, milestone):
        data = torch.load(self.folder / f"model-{milestone}.pt", map_location=self.device)
        self.model.load_state_dict(data["model"])
        self.opt.load_state_dict(data["opt"])
        self.ema.ema_model.load_state_dict(data["ema"])
        self.scaler.load_state_dict(data["scaler"])
        self.step = data["step"]

    def train(self):
        acc = self.cfg.gradient_accumulate_every
        t0 = time.time()
        while self.step < self.cfg.train_steps:
            total = 0.0
            for _ in range(acc):
                data = next(self.dl).to(self.device)
                with torch.autocast(self.device.type, enabled=self.amp):
                    loss = self.model(data) / acc
                total += loss.item()
                self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.opt)
            gnorm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.max_grad_norm)
            self.scaler.step(self.opt)
            self.scaler.update()
            self.opt.zero_grad()
            self.step += 1
            self.ema.update(self.model)
            if self.step % 20 == 0:
                print(f"step {self.step:4d}/{self.cfg.train_steps} loss {total:.4f} |g| {gnorm:.3f} "
                      f"{(time.time() - t0) / self.step * 1000:.0f} ms/step", flush=True)
            if self.step % self.cfg.save_and_sample_every == 0:
                milestone = self.step // self.cfg.save_and_sample_every
                imgs = self.ema.ema_model.sample(16)
                save_grid(imgs, self.folder / f"sample-{milestone}.pgm")
                self.save(milestone)
                print(f"milestone {milestone}: sample mean {imgs.mean().item():.3f} std {imgs.std().item():.3f}")
        print("training complete")
