"""Aerial images and their masks."""

from pathlib import Path

import cv2
import torch
from torch.utils import data
from torch.utils.data.distributed import DistributedSampler


class Tiles(data.Dataset):
    """Pairs of files."""

    def __init__(self, folder):
        self.images = sorted(Path(folder, "images").glob("*.png"))
        self.masks = sorted(Path(folder, "masks").glob("*.png"))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = cv2.cvtColor(cv2.imread(str(self.images[index])), cv2.COLOR_BGR2RGB)
        mask = cv2.imread(str(self.masks[index]), cv2.IMREAD_GRAYSCALE)
        image = torch.from_numpy(image).permute(2, 0, 1).float() / 255
        return image, torch.from_numpy(mask > 0).float()


def loader_for(folder, rank, size, workers=0):
    """The loader of one rank, and its sampler."""
    tiles = Tiles(folder)
    sampler = DistributedSampler(tiles, num_replicas=size, rank=rank)
    return data.DataLoader(tiles, 8, sampler=sampler, num_workers=workers), sampler
