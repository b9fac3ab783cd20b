import torch
from torch.distributed import get_rank


def end_epoch(epoch, model, scheduler):
    scheduler.step()
    if get_rank() != 0:
        return
    torch.save(model.module.state_dict(), "spectra_net.pt")
    print("epoch", epoch, "next rate", scheduler.get_last_lr()[0])
