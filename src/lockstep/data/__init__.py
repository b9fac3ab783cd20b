"""Load data sets, augment them with randomness keyed per sample, and make batches."""

from lockstep.data.augment import cutout, flip, flip_alternating, pad_crop
from lockstep.data.batches import Arrival, Finish, Loader, Request, Watch
from lockstep.data.dataset import Data, Resident, Tensors, Windows
from lockstep.data.digits import digits
from lockstep.data.image_folder import Images, folder
from lockstep.data.images import cifar10, fashion_mnist
from lockstep.data.keyed import EpochKeys, SampleKeys
from lockstep.data.loaders import make_loader
from lockstep.data.synthetic import line, synthetic
from lockstep.data.text import stdlib

__all__ = [
    "Arrival",
    "Data",
    "EpochKeys",
    "Finish",
    "Images",
    "Loader",
    "Request",
    "Resident",
    "SampleKeys",
    "Tensors",
    "Watch",
    "Windows",
    "cifar10",
    "cutout",
    "digits",
    "fashion_mnist",
    "flip",
    "flip_alternating",
    "folder",
    "line",
    "make_loader",
    "pad_crop",
    "stdlib",
    "synthetic",
]
