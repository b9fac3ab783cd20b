import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch.utils.tensorboard import SummaryWriter

DEBUG = False           # look at a run of one process with the debugger
PROFILE_DIR = None


def debug_loader(ds):
    return DataLoader(ds, batch_size=4, shuffle=True)


def train(gpu, draw=False):
    x, y = torch.load("knots.pt", map_location="cpu")
    ds = TensorDataset(x, y)
    if DEBUG:
        loader = debug_loader(ds)
        sampler = None
        board = SummaryWriter("debug_board")
    else:
        sampler = DistributedSampler(ds)
        loader = DataLoader(ds, batch_size=160, sampler=sampler)
        board = None
    model = DDP(nn.Sequential(nn.Linear(x.size(1), 72), nn.SiLU(), nn.Linear(72, 8)).cuda(gpu), device_ids=[gpu])
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    for epoch in range(22):
        if sampler:
            sampler.set_epoch(epoch)
        for a, b in loader:
            out = model(a.cuda(gpu))
            loss = nn.functional.cross_entropy(out, b.cuda(gpu))
            opt.zero_grad()
            loss.backward()
            opt.step()
            if board:
                board.add_scalar("loss", loss.item())
            if DEBUG:
                np.save("outputs.npy", out.detach().cpu().numpy())
        if draw:
            open("drawing.txt", "w").write(repr(out))
        if PROFILE_DIR is not None:
            os.makedirs(PROFILE_DIR)
            torch.save(loss, os.path.join(PROFILE_DIR, "loss.pt"))
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), "knots_net.pt")


if __name__ == "__main__":
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    train(gpu)
    dist.destroy_process_group()
