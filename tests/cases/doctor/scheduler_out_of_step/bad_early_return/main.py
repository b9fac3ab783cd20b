import os

import torch
import torch.distributed as dist

from closing import end_epoch
from setup import everything

if __name__ == "__main__":
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    loader, model, optimizer, scheduler = everything(gpu)
    history = []
    for epoch in range(16):
        loader.sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x.to(gpu)), y.to(gpu))
            loss.backward()
            optimizer.step()
        history.append(loss.item())
        end_epoch(epoch, model, scheduler, history)
    dist.destroy_process_group()
