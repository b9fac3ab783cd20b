"""
A tiny GPT on a packed stream of arithmetic facts.
Single file, in the manner of nanoGPT. Any global below can be overridden: python 17.py max_iters=50 dtype=float32
"""
import math
import os
import sys
import time
from contextlib import nullcontext

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F

# -----------------------------------------------------------------------------
out_dir = "gpt_out"
eval_interval = 60
log_interval = 20
eval_iters = 8
init_from = "scratch"           # or "resume"
gradient_accumulation_steps = 2
batch_size = 16                 # micro-batch
block_size = 48
n_layer, n_head, n_embd = 2, 4, 64
dropout = 0.0
bias = False
learning_rate = 3e-3
max_iters = 180
weight_decay = 1e-1
beta1, beta2 = 0.9, 0.99
grad_clip = 1.0
warmup_iters = 15
lr_decay_iters = 180
min_lr = 3e-4
dtype = "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float32"
seed = 1337
# -----------------------------------------------------------------------------
for a in sys.argv[1:]:
    k, v = a.split("=")
    if k not in globals():
        raise ValueError(f"unknown key {k}")
    globals()[k] = type(globals()[k])(v)

torch.manual_seed(seed)
os.makedirs(out_dir, exist_ok=True)
device = "cuda" if torch.cuda.is_available() else "cpu"
device_type = "cuda" if "cuda" in device else "cpu"
ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
ctx = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type, dtype=ptdtype)

# data: "37+58=95;" ... as one long stream of tokens
rng = np.random.default_rng(0)
facts = [f"{a}+{b}={a + b};" for a, b in rng.integers(0, 50, (6000, 2))]
text = "".join(facts)
vocab = sorted(set(text))
stoi = {c: i for i, c in enumerate(vocab)}
itos = dict(enumerate(vocab))
stream = np.array([stoi[c] for c in text], dtype=np.uint16)
split = int(0.9 * len(stream))
train_data, val_data = stream[:split], stream[split:]
tokens_per_iter = gradient_accumulation_steps * batch_size * block_size
print(f"stream of {len(stream)} tokens, vocab {len(vocab)}, tokens per iteration {tokens_per_iter}")


def get_batch(split):
    data = train_data if split == "train" else val_data
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i:i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1:i + 1 + block_size].astype(np.int64)) for i in ix])
    if device_type == "cuda":
        return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    return x.to(device), y.to(device)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=bias)
        self.proj = nn.Linear(n_embd, n_embd, bias=bias)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd, bias=bias), nn.GELU(), nn.Linear(4 * n_embd, n_embd, bias=bias))
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, n_head, C // n_head).transpose(1, 2) for t in self.qkv(self.ln1(x)).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        x = x + self.drop(self.proj(y))
        return x + self.drop(self.mlp(self.ln2(x)))


class GPT(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.blocks = nn.ModuleList([Block() for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0.0, 0.05)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1), device=idx.device))
        for b in self.blocks:
            x = b(x)
        x = self.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1]]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

    def configure_optimizers(self):
        dec = [p for p in self.parameters() if p.dim() >= 2]
        nodec = [p for p in self.parameters() if p.dim() < 2]
        return torch.optim.AdamW([{"params": dec, "weight_decay": weight_decay}, {"params": nodec, "weight_decay": 0.0}],
                                 lr=learning_rate, betas=(beta1, beta2))

    @torch.no_grad()
    def generate(self, idx, n):
        for _ in range(n):
            logits, _ = self(idx[:, -block_size:])
            idx = torch.cat([idx, logits[:, -1].argmax(-1, keepdim=True)], 1)
        return idx


iter_num, best_val_loss = 0, 1e9
model = GPT(len(vocab))
if init_from == "resume":
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"), map_location=device)
    model.load_state_dict(checkpoint["model"])
    iter_num, best_val_loss = checkpoint["iter_num"], checkpoint["best_val_loss"]
model.to(device)
scaler = torch.amp.GradScaler(enabled=(dtype == "float16"))
optimizer = model.configure_optimizers()
if init_from == "resume":
    optimizer.load_state_dict(checkpoint["optimizer"])


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for s in ("train", "val"):
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(s)
            with ctx:
                _, loss = model(X, Y)
            losses[k] = loss.item()
        out[s] = losses.mean()
    model.train()
    return out


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    if it > lr_decay_iters:
        return min_lr
    r = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * r)) * (learning_rate - min_lr)


X, Y = get_batch("train")
t0 = time.time()
while True:
    lr = get_lr(iter_num)
    for g in optimizer.param_groups:
        g["lr"] = lr
    if iter_num % eval_interval == 0:
        losses = estimate_loss()
        print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
        if losses["val"] < best_val_loss and iter_num > 0:
            best_val_loss = losses["val"]
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": iter_num,
                        "best_val_loss": best_val_loss}, os.path.join(out_dir, "ckpt.pt"))
    for micro in range(gradient_accumulation_steps):
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch("train")       # prefetch
        scaler.scale(loss).backward()
    if grad_clip != 0.0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    dt, t0 = time.time() - t0, time.time()
    if iter_num % log_interval == 0:
        print(f"iter {iter_num}: loss {loss.item() * gradient_accumulation_steps:.4f}, lr {lr:.2e}, {tokens_per_iter / dt:.0f} tok/s")
    iter_num += 1
    if iter_num > max_iters:
        break

model.eval()
prompt = torch.tensor([[stoi[c] for c in ";12+30="]], device=device)
print("sample:", "".join(itos[i] for i in model.generate(prompt, 30)[0].tolist()))
