"""Augmentation of whole batches on the device, with randomness keyed per sample."""

from lockstep.data.augment import cutout, flip, flip_alternating, pad_crop
from lockstep.data.keyed import SampleKeys

__all__ = ["SampleKeys", "cutout", "flip", "flip_alternating", "pad_crop"]
