"""The works: what every side of a bench trains, described once so that none of them differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, AdamW

from lockstep import models
from lockstep.bench.synthetic_data import Repeated, images, text
from lockstep.data import Data, Resident, Tensors
from lockstep.engine.recipe.recipe import PrecisionName, Recipe
from lockstep.engine.step.metrics import accuracy, cross_entropy

LONG_EPOCH = 1_000_000
"""Samples."""
MANY_EPOCHS = 1_000_000
"""A side trains until it is ended."""


def token_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy over all tokens, as language models are trained."""
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


@dataclass(frozen=True, kw_only=True)
class Work:
    """A model, its data and its optimizer."""

    name: str
    sentence: str
    """What it is, for the table."""
    model: Callable[[], nn.Module]
    samples: Callable[[], Resident]
    """Makes the training data, in memory."""
    batch: int
    """Samples of each replica in a step."""
    optimizer: Callable[..., torch.optim.Optimizer]
    """One of torch's own; called with the parameters and `lr`."""
    learning_rate: float
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy
    """The mean over the batch, as people write it; lockstep takes its own, one value per item."""
    clip: float | None = None
    """Largest norm of the gradient, if any."""
    channels_last: bool = False
    """For lockstep and the tuned side."""
    precision: PrecisionName = "bf16"
    """On a GPU, for the sides that can choose; on the CPU it is fp32 unless asked."""
    capture: bool = False
    """Whether an expert would put the whole step into one CUDA graph: the kernels are tiny."""
    workers: int = 0
    """Processes that read for a DataLoader on a GPU. For tiny samples none is fastest."""

    def recipe(self, samples: Resident, replicas: int, precision: PrecisionName) -> Recipe:
        """The same work for lockstep; one shard for each replica, so that all shapes are equal."""
        test = Tensors(*samples.take(torch.arange(min(8, len(samples)))))
        # The other sides evaluate nothing: with long epochs neither does lockstep, to speak of.
        train = Repeated(samples, max(1, LONG_EPOCH // len(samples)))
        return Recipe(
            name=self.name,
            model=self.model,
            data=lambda: Data(train=train, test=test),
            loss=cross_entropy,
            metrics={"accuracy": accuracy},
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            global_batch=self.batch * replicas,
            shards=replicas,
            epochs=MANY_EPOCHS,
            precision=precision,
            clip=self.clip,
            channels_last=self.channels_last,
        )


_nesterov = partial(SGD, momentum=0.9, nesterov=True, weight_decay=5e-4)
# As many and as large as those of Fashion-MNIST.
_small_images = partial(images, 60_000, (1, 28, 28), 10)

MLP = Work(
    name="mlp",
    sentence="MLP 784-128-10, batch 64",
    model=partial(models.mlp, (784, 128, 10)),
    samples=_small_images,
    batch=64,
    optimizer=partial(SGD, momentum=0.9),
    learning_rate=0.05,
    precision="fp32",
    capture=True,
)

WRN_16_2 = Work(
    name="wrn-16-2",
    sentence="WideResNet-16-2, 28x28, batch 64",
    model=partial(models.wideresnet, 16, 2, channels=1),
    samples=_small_images,
    batch=64,
    optimizer=_nesterov,
    learning_rate=0.05,
    channels_last=True,
)

WRN_16_10 = Work(
    name="wrn-16-10",
    sentence="WideResNet-16-10, 28x28, batch 128",
    model=partial(models.wideresnet, 16, 10, channels=1),
    samples=_small_images,
    batch=128,
    optimizer=_nesterov,
    learning_rate=0.05,
    channels_last=True,
)

WRN_16_10_512 = Work(
    name="wrn-16-10-512",
    sentence="WideResNet-16-10, 28x28, batch 512",
    model=partial(models.wideresnet, 16, 10, channels=1),
    samples=_small_images,
    batch=512,
    optimizer=_nesterov,
    learning_rate=0.05,
    channels_last=True,
)

RESNET50 = Work(
    name="resnet50",
    sentence="ResNet-50, 224x224, batch 256",
    model=models.resnet50,
    samples=lambda: Repeated(images(1024, (3, 224, 224), 1000), 250),
    batch=256,
    optimizer=partial(SGD, momentum=0.9, nesterov=True, weight_decay=5e-5),
    learning_rate=0.05,
    channels_last=True,
    workers=8,
)

GPT = Work(
    name="gpt",
    sentence="GPT, 12 layers of 768, length 1024, batch 32",
    model=partial(models.gpt, 12, 768, 12, vocabulary=50304, length=1024),
    samples=partial(text, 16_384, 1024, 50304),
    batch=32,
    optimizer=partial(AdamW, betas=(0.9, 0.95), weight_decay=0.1),
    learning_rate=3e-4,
    loss=token_loss,
    clip=1.0,
)

WORKS = {w.name: w for w in (MLP, WRN_16_2, WRN_16_10, WRN_16_10_512, RESNET50, GPT)}
ON_CPU = ("mlp", "wrn-16-2")
ON_GPU = ("mlp", "wrn-16-10", "wrn-16-10-512", "resnet50", "gpt")
"""What is measured when no work is named."""
