import os

import torch
from torch import distributed


def launch(backend):
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    distributed.init_process_group(backend=backend, init_method="env://")
    return distributed.get_rank(), local_rank, distributed.get_world_size()


def shutdown():
    distributed.barrier()
    distributed.destroy_process_group()
