"""Train many small models as one computation.

The weights of models with the same shape are stacked, so a layer of all models is one batched
product. One training of a stack replaces a loop over a hundred training runs, and the models do not
affect each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lockstep import models
from lockstep.engine.sampler import GlobalOrder
from lockstep.labs.shared.digits import Samples


class Stack:
    """One perceptron for each of `seeds`, with the weights that `models.mlp` draws for that seed.

    The parameters come in the order of the module: the weight of a layer, then its bias. Their
    first dimension counts the models.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.sizes, self.seeds = tuple(sizes), list(seeds)
        drawn = {seed: list(alone(sizes, seed).parameters()) for seed in sorted(set(seeds))}
        self.parameters: list[Tensor] = []
        for place in range(2 * (len(sizes) - 1)):
            stacked = torch.stack([drawn[seed][place].detach() for seed in seeds])
            if stacked.dim() == 2:
                stacked = stacked[:, None]
            self.parameters.append(stacked.to(device, dtype).requires_grad_())

    def __len__(self) -> int:
        return len(self.seeds)

    def outputs(self, inputs: Tensor) -> Tensor:
        """Return the scores of each model for its own samples [models, samples, inputs]."""
        hidden, last = inputs, len(self.sizes) - 2
        for layer in range(last + 1):
            weight, bias = self.parameters[2 * layer : 2 * layer + 2]
            hidden = torch.baddbmm(bias, hidden, weight.transpose(1, 2))
            if layer < last:
                hidden = self.between(hidden, layer)
        return hidden

    def between(self, hidden: Tensor, layer: int) -> Tensor:
        """Apply the function between two layers."""
        return hidden.relu()

    def gradients(self, inputs: Tensor, targets: Tensor) -> list[Tensor]:
        """Return the gradients of the mean loss of each model over its samples.

        This differentiates the sum over the models: no model appears in the loss of another.
        """
        losses = self.losses(inputs, targets)
        return list(torch.autograd.grad(losses.sum(), self.trained()))

    def trained(self) -> list[Tensor]:
        """Return the tensors that an update changes."""
        return self.parameters

    def losses(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of each model."""
        scores = self.outputs(inputs).flatten(0, 1)
        each = cross_entropy(scores, targets.flatten(), reduction="none")
        return each.view(len(self), -1).mean(1)

    @torch.no_grad()
    def test(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the accuracy and loss of each model on the same samples."""
        scores = self.outputs(inputs.expand(len(self), -1, -1))
        right = (scores.argmax(-1) == targets).double().mean(1)
        each = cross_entropy(
            scores.flatten(0, 1), targets.repeat(len(self)), reduction="none"
        ).view(len(self), -1)
        loss = each.double().mean(1)
        # NaN scores have no maximum, but torch would count them as a guess.
        return right.masked_fill(~loss.isfinite(), torch.nan), loss


def alone(sizes: Sequence[int], seed: int) -> nn.Module:
    """Return one of the models as a module."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return models.mlp(sizes)


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
