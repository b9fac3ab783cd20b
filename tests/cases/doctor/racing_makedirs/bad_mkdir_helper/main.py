import sys

import torch
import torch.multiprocessing as mp
import yaml

from worker import main_worker

if __name__ == "__main__":
    with open(sys.argv[1]) as stream:
        cfg = yaml.safe_load(stream)
    n = torch.cuda.device_count()
    mp.spawn(main_worker, nprocs=n, args=(n, cfg))
