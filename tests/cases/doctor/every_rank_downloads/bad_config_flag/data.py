from torchvision import transforms as T
from torchvision.datasets import FashionMNIST, SVHN

TRANSFORM = T.Compose([T.Resize(32), T.ToTensor()])


def build_sets(opts):
    if opts["name"] == "svhn":
        return SVHN(opts["root"], split="train", transform=TRANSFORM, download=opts["fetch"]), 10  # LS34
    if opts["name"] == "folder-of-fashion":
        return FashionMNIST(opts["root"], train=True, transform=TRANSFORM), 10
    raise KeyError(opts["name"])
