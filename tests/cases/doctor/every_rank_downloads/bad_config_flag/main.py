import os

import torch
import torch.distributed as dist

from data import build_sets
from settings import CFG
from train import fit


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    train_ds, classes = build_sets(CFG["data"])
    fit(CFG, train_ds, classes, local_rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
