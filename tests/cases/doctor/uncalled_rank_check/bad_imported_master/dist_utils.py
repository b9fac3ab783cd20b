import os

import torch
import torch.distributed as dist


def start():
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    return gpu


def stop():
    dist.destroy_process_group()


def is_master():
    return dist.get_rank() == 0


def average(value, gpu):
    t = torch.tensor(value, device=gpu)
    dist.all_reduce(t)
    return t.item() / dist.get_world_size()
