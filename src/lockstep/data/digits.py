"""Load 1,797 handwritten digits of 8x8 pixels that come with the package.

The test set of "Optical Recognition of Handwritten Digits" (Alpaydin, Kaynak 1998; UCI Machine
Learning Repository, doi.org/10.24432/C50P49, CC BY 4.0), as scikit-learn's `load_digits` has it.
"""

from __future__ import annotations

from functools import partial
from importlib import resources

import numpy as np
import torch

from lockstep.data.dataset import Data, Tensors
from lockstep.data.images import normalise

# Mean and deviation of the 1,437 training images, divided by 16.
MEAN, STD = (0.30521,), (0.37632,)


def digits() -> Data:
    """Load 1,437 images of handwritten digits to train on and 360 to test on.

    Every fifth image, from the first on, is a test image. Inputs are bytes from 0 to 16,
    [n, 1, 8, 8]. They come with the package.
    """
    with resources.files("lockstep.data").joinpath("digits.npz").open("rb") as file:
        arrays = np.load(file)
        images = torch.from_numpy(arrays["images"])[:, None]
        labels = torch.from_numpy(arrays["labels"]).long()
    is_test = torch.arange(len(images)) % 5 == 0
    return Data(
        train=Tensors(images[~is_test], labels[~is_test]),
        test=Tensors(images[is_test], labels[is_test]),
        prepare=partial(normalise, mean=MEAN, std=STD, peak=16.0),
    )
