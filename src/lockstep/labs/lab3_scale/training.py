"""Train a stack: the order of the samples, an update, and evaluations along the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from lockstep.engine.sampler import GlobalOrder
from lockstep.labs.lab3_scale.model_stack import Stack
from lockstep.labs.shared.digits import Samples


class Update(Protocol):
    """Changes the weights of a stack."""

    def __call__(self, step: int, gradients: list[Tensor]) -> None:
        """Take step number `step`, from 0."""


class Looks(NamedTuple):
    """Evaluations of all models after some steps; NaN if the scores were NaN."""

    steps: list[int]
    accuracy: Tensor
    """The accuracy, [evaluations, models]."""
    loss: Tensor
    """The mean loss over the test data, [evaluations, models]."""


def train(
    stack: Stack,
    samples: Samples,
    update: Update,
    *,
    batch: int,
    looks: Sequence[int],
    advance: Callable[[int], None] = lambda step: None,
) -> Looks:
    """Train up to the last step in `looks`; call `advance` at every evaluation."""
    wanted = sorted(set(looks))
    accuracy, losses = [], []
    drawn = batches(samples, stack.seeds, batch)
    for step in range(wanted[-1] + 1):
        if step in wanted:
            right, loss = stack.test(samples.test_inputs, samples.test_targets)
            accuracy.append(right)
            losses.append(loss)
            advance(step)
        if step < wanted[-1]:
            update(step, stack.gradients(*next(drawn)))
    return Looks(wanted, torch.stack(accuracy).cpu(), torch.stack(losses).cpu())


def batches(samples: Samples, seeds: Sequence[int], batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield endless batches [models, samples, ...]; models of one seed get the same samples."""
    known = sorted(set(seeds))
    orders = [GlobalOrder(len(samples), batch, seed) for seed in known]
    device = samples.inputs.device
    own = torch.tensor([known.index(seed) for seed in seeds], device=device)
    epoch = 0
    while True:
        for number in range(orders[0].rounds_per_epoch):
            chosen = torch.stack([order.batch(epoch, number, device) for order in orders])
            yield samples.inputs[chosen][own], samples.targets[chosen][own]
        epoch += 1


class Momentum:
    """SGD with torch's momentum; the rates may differ by model and step."""

    def __init__(self, stack: Stack, rates: Tensor, momentum: Tensor | float = 0.0) -> None:
        """`rates` is [steps, models], or [models] for constant rates."""
        self.weights = stack.trained()
        device, dtype = self.weights[0].device, self.weights[0].dtype
        self.rates = rates.to(device, dtype)
        shares = torch.as_tensor(momentum).to(device, dtype).expand(len(stack))
        self.momentum = shares[:, None, None]
        self.velocity = [torch.zeros_like(w) for w in self.weights]

    @torch.no_grad()
    def __call__(self, step: int, gradients: list[Tensor]) -> None:
        """Update v = momentum v + g and w = w - rate v."""
        rate = (self.rates[step] if self.rates.dim() == 2 else self.rates)[:, None, None]
        for weight, speed, gradient in zip(self.weights, self.velocity, gradients, strict=True):
            speed.mul_(self.momentum).add_(gradient)
            weight.addcmul_(speed, rate, value=-1)


def epochs_of(steps: int, batch: int, samples: int) -> float:
    """Return the epochs in a number of steps."""
    per_epoch = -(-samples // batch)
    whole, rest = divmod(steps, per_epoch)
    return whole + min(samples, rest * batch) / samples
