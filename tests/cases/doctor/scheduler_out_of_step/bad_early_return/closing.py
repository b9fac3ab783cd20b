import json

import torch
from torch.distributed import get_rank


def end_epoch(epoch, model, scheduler, history):
    if get_rank() != 0:
        return
    with open("history.json", "w") as f:
        json.dump(history, f)
    torch.save(model.module.state_dict(), "spectra_net.pt")
    scheduler.step()  # LS23
    print("epoch", epoch, "next rate", scheduler.get_last_lr()[0])
