"""Wissensdestillation: grosser Lehrer -> kleiner Schueler, auf verrauschten Spiralen.

Zuerst wird der Lehrer trainiert (oder geladen), danach eingefroren.
"""
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import yaml
from torch.utils.data import DataLoader, Dataset

CONFIG = yaml.safe_load("""
seed: 5
data: {train: 1500, test: 600, classes: 5, noise: 0.12, dim: 10}
loader: {batch_size: 75, workers: 0}
teacher: {hidden: 128, depth: 3, epochs: 8, lr: 0.003}
student: {hidden: 24, depth: 2, epochs: 15, lr: 0.02}
kd: {T: 3.0, alpha: 0.7, hint: 0.1}
""")


def set_seed(s):
    random.seed(s)
    np.random.seed(s)
    torch.manual_seed(s)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(s)


class Spirals(Dataset):
    def __init__(self, n, classes, noise, dim, seed, train):
        rng = np.random.default_rng(seed)
        self.y = rng.integers(classes, size=n)
        r = np.sqrt(rng.uniform(0.02, 1, n))
        phi = 3.5 * r + self.y * 2 * np.pi / classes
        xy = np.stack([r * np.cos(phi), r * np.sin(phi)], 1)
        lift = np.random.default_rng(0).normal(size=(2, dim))
        self.x = (xy @ lift).astype(np.float32)
        self.noise, self.train = noise, train

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.x[i]
        if self.train:                     # neues Rauschen bei jedem Zugriff
            x = x + np.random.normal(0, self.noise, x.shape).astype(np.float32)
        return torch.from_numpy(x), int(self.y[i])


class Net(nn.Module):
    def __init__(self, dim, hidden, depth, classes):
        super().__init__()
        self.inp = nn.Linear(dim, hidden)
        self.blocks = nn.ModuleList([nn.Linear(hidden, hidden) for _ in range(depth)])
        self.out = nn.Linear(hidden, classes)

    def forward(self, x, features=False):
        h = torch.relu(self.inp(x))
        for b in self.blocks:
            h = h + torch.relu(b(h))
        z = self.out(h)
        return (z, h) if features else z


def accuracy(net, loader, device):
    net.eval()
    ok = n = 0
    with torch.no_grad():
        for x, y in loader:
            ok += (net(x.to(device)).argmax(1).cpu() == y).sum().item()
            n += len(y)
    return ok / n


def train_teacher(net, loader, test_loader, cfg, device):
    opt = torch.optim.Adam(net.parameters(), lr=cfg["lr"])
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, cfg["lr"], epochs=cfg["epochs"], steps_per_epoch=len(loader))
    for ep in range(cfg["epochs"]):
        net.train()
        for x, y in loader:
            loss = F.cross_entropy(net(x.to(device)), y.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
        print(f"[Lehrer] Epoche {ep + 1}: Verlust {loss.item():.4f}  Genauigkeit {accuracy(net, test_loader, device):.4f}")
    return net


def distill(student, teacher, adapter, loader, test_loader, cfg, kd, device):
    teacher.eval()
    for p in teacher.parameters():
        p.requires_grad = False
    opt = torch.optim.SGD([{"params": student.parameters()},
                           {"params": adapter.parameters(), "lr": cfg["lr"] * 0.5}],
                          lr=cfg["lr"], momentum=0.9, nesterov=True)
    sched = torch.optim.lr_scheduler.MultiStepLR(opt, [cfg["epochs"] // 2, cfg["epochs"] * 3 // 4], 0.3)
    for ep in range(cfg["epochs"]):
        student.train()
        summe = {"ce": 0.0, "kd": 0.0, "hint": 0.0}
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            with torch.no_grad():
                t_logits, t_feat = teacher(x, features=True)
            s_logits, s_feat = student(x, features=True)
            l_ce = F.cross_entropy(s_logits, y)
            l_kd = F.kl_div(F.log_softmax(s_logits / kd["T"], 1), F.softmax(t_logits / kd["T"], 1),
                            reduction="batchmean") * kd["T"] ** 2
            l_hint = F.mse_loss(adapter(s_feat), t_feat)
            loss = (1 - kd["alpha"]) * l_ce + kd["alpha"] * l_kd + kd["hint"] * l_hint
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(student.parameters(), 1.0)
            opt.step()
            for k, v in zip(summe, (l_ce, l_kd, l_hint)):
                summe[k] += v.item() / len(loader)
        sched.step()
        acc = accuracy(student, test_loader, device)
        print(f"[Schueler] Epoche {ep + 1:2d}: " + " ".join(f"{k}={v:.4f}" for k, v in summe.items()) + f"  Genauigkeit {acc:.4f}")
    return acc


def main(cfg):
    set_seed(cfg["seed"])
    device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
    d = cfg["data"]
    train_set = Spirals(d["train"], d["classes"], d["noise"], d["dim"], 1, True)
    test_set = Spirals(d["test"], d["classes"], d["noise"], d["dim"], 2, False)
    loader = DataLoader(train_set, cfg["loader"]["batch_size"], True, num_workers=cfg["loader"]["workers"])
    test_loader = DataLoader(test_set, 200)

    teacher = Net(d["dim"], cfg["teacher"]["hidden"], cfg["teacher"]["depth"], d["classes"]).to(device)
    path = "teacher.pt"
    if os.path.exists(path):
        teacher.load_state_dict(torch.load(path, map_location=device))
        print("Lehrer geladen")
    else:
        train_teacher(teacher, loader, test_loader, cfg["teacher"], device)
        torch.save(teacher.state_dict(), path)
    t_acc = accuracy(teacher, test_loader, device)

    student = Net(d["dim"], cfg["student"]["hidden"], cfg["student"]["depth"], d["classes"]).to(device)
    adapter = nn.Linear(cfg["student"]["hidden"], cfg["teacher"]["hidden"]).to(device)
    s_acc = distill(student, teacher, adapter, loader, test_loader, cfg["student"], cfg["kd"], device)
    torch.save(student.state_dict(), "student.pt")
    print(f"Lehrer {t_acc:.4f} -> Schueler {s_acc:.4f}")


if __name__ == "__main__":
    main(CONFIG)
