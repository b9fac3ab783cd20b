"""The works: models and data that every side of a bench trains, each described once."""

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
"""Samples in an epoch of lockstep, which evaluates after each epoch."""
MANY_EPOCHS = 1_000_000
"""More than any bench takes: a side trains until the bench ends it."""


def token_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy over all tokens, as language models use it."""
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


@dataclass(frozen=True, kw_only=True)
class Work:
    """A training problem for all sides: a model, its data, batch size and optimizer."""

    name: str
    sentence: str
    """Describes the work in the tables."""
    model: Callable[[], nn.Module]
    samples: Callable[[], Resident]
    """Makes the training data in memory."""
    batch: int
    """Samples per replica and step."""
    optimizer: Callable[..., torch.optim.Optimizer]
    """An optimizer of torch, called with the parameters and `lr`."""
    learning_rate: float = 0.05
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy
    """Returns the mean over the batch. lockstep uses its own loss, with one value per item."""
    clip: float | None = None
    """Largest norm of the gradient; None means no clipping."""
    channels_last: bool = False
    """Whether lockstep and the tuned side use channels_last."""
    precision: PrecisionName = "bf16"
    """The precision on a GPU of sides that can choose. On the CPU the default is fp32."""
    capture: bool = False
    """Whether an expert would put the whole step into one CUDA graph: the kernels are tiny."""
    workers: int = 0
    """Worker processes of a DataLoader on a GPU. For tiny samples, none is fastest."""
    devices: tuple[str, ...] = ()
    """Devices on which `lockstep bench` measures this work if the user names none."""

    def recipe(self, samples: Resident, replicas: int, precision: PrecisionName) -> Recipe:
        """Return the work as a recipe, with one shard per replica so that all shapes are equal."""
        test = Tensors(*samples.take(torch.arange(min(8, len(samples)))))
        # The other sides evaluate nothing. With long epochs, lockstep hardly ever does.
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


# As many images as Fashion-MNIST has, and as large.
_small_images = partial(images, 60_000, (1, 28, 28), 10)


def _wideresnet(name: str, width: int, batch: int, device: str) -> Work:
    return Work(
        name=name,
        sentence=f"WideResNet-16-{width}, 28x28, batch {batch}",
        model=partial(models.wideresnet, 16, width, channels=1),
        samples=_small_images,
        batch=batch,
        optimizer=partial(SGD, momentum=0.9, nesterov=True, weight_decay=5e-4),
        channels_last=True,
        devices=(device,),
    )


_ALL = (
    Work(
        name="mlp",
        sentence="MLP 784-128-10, batch 64",
        model=partial(models.mlp, (784, 128, 10)),
        samples=_small_images,
        batch=64,
        optimizer=partial(SGD, momentum=0.9),
        precision="fp32",
        capture=True,
        devices=("cpu", "cuda"),
    ),
    _wideresnet("wrn-16-2", 2, 64, "cpu"),
    _wideresnet("wrn-16-10", 10, 128, "cuda"),
    _wideresnet("wrn-16-10-512", 10, 512, "cuda"),
    Work(
        name="resnet50",
        sentence="ResNet-50, 224x224, batch 256",
        model=models.resnet50,
        samples=lambda: Repeated(images(1024, (3, 224, 224), 1000), 250),
        batch=256,
        optimizer=partial(SGD, momentum=0.9, nesterov=True, weight_decay=5e-5),
        channels_last=True,
        workers=8,
        devices=("cuda",),
    ),
    Work(
        name="gpt",
        sentence="GPT, 12 layers of 768, length 1024, batch 32",
        model=partial(models.gpt, 12, 768, 12, vocabulary=50304, length=1024),
        samples=partial(text, 16_384, 1024, 50304),
        batch=32,
        optimizer=partial(AdamW, betas=(0.9, 0.95), weight_decay=0.1),
        learning_rate=3e-4,
        loss=token_loss,
        clip=1.0,
        devices=("cuda",),
    ),
)
WORKS = {work.name: work for work in _ALL}
