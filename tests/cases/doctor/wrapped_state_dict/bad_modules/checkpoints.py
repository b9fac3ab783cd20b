"""Writing checkpoints."""

import os

import torch


def save_checkpoint(model, optimizer, epoch, folder):
    os.makedirs(folder, exist_ok=True)
    state = {
        "epoch": epoch,
        "state_dict": model.state_dict(),  # LS27
        "optimizer": optimizer.state_dict(),
    }
    torch.save(state, os.path.join(folder, f"epoch_{epoch:03d}.pt"))
