from torchvision.datasets import SVHN
from torchvision.transforms import ToTensor

from sync import local_leader_first


def build_sets(root, fetch):
    with local_leader_first():
        return SVHN(root, split="train", transform=ToTensor(), download=fetch)
