"""Names of weights that are not here, and models made without them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import wraps
from typing import Any

import torch
from torch import nn

from lockstep.probes.fake_data.notes import note


class _Weights(Enum):
    def transforms(self) -> Any:
        """What images go through before the model."""
        from .. import transforms as T

        means, deviations = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
        return T.Compose(
            [T.Resize(256), T.CenterCrop(224), T.ToTensor(), T.Normalize(means, deviations)]
        )

    @property
    def meta(self) -> dict[str, Any]:
        """What is known of them."""
        return {"categories": [str(number) for number in range(1000)]}


class _One(_Weights):
    IMAGENET1K_V1 = DEFAULT = "v1"


class _Two(_Weights):
    IMAGENET1K_V1 = "v1"
    IMAGENET1K_V2 = DEFAULT = "v2"


AlexNet_Weights = DenseNet121_Weights = ResNet18_Weights = ResNet34_Weights = _One
VGG11_Weights = VGG11_BN_Weights = VGG16_Weights = VGG16_BN_Weights = VGG19_Weights = _One
ResNet50_Weights = ResNet101_Weights = ResNet152_Weights = MobileNet_V2_Weights = _Two


def model(make: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """The arguments that all models take."""

    @wraps(make)
    def made(
        pretrained: Any = False, progress: bool = True, *, weights: Any = None, **config: Any
    ) -> nn.Module:
        name = make.__name__
        # The first argument was `pretrained` once; later versions take names for it.
        if not (pretrained or weights):
            note(f"{name}: a stand-in model, narrow inside")
            return make(**config)
        note(f"{name}: a stand-in model, narrow inside, with random weights for pretrained ones")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return make(**config)

    return made
