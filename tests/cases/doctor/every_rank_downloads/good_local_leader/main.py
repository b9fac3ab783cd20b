import os

import torch
import torch.distributed as dist

from data import build_sets
from train import fit

OPTIONS = {"root": "/local_scratch/svhn", "fetch": True, "epochs": 20, "batch": 128, "lr": 0.03}

if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    fit(OPTIONS, build_sets(OPTIONS["root"], OPTIONS["fetch"]))
    dist.destroy_process_group()
