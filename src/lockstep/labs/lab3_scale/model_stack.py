"""Many small models as one computation.

Weights of models that have the same shape are stacked: a layer of all of them is one batched
product. What would be a loop over a hundred trainings is one training of a stack, in which no
model knows of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lockstep import models


class Stack:
    """One perceptron for each of `seeds`, with the weights that `models.mlp` draws for that seed.

    Parameters come as in the module: the weight of a layer, then its bias; the first dimension
    counts the models.
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
        """Scores of each model for samples of its own: [models, samples, inputs] to classes."""
        hidden, last = inputs, len(self.sizes) - 2
        for layer in range(last + 1):
            weight, bias = self.parameters[2 * layer : 2 * layer + 2]
            hidden = torch.baddbmm(bias, hidden, weight.transpose(1, 2))
            if layer < last:
                hidden = self.between(hidden, layer)
        return hidden

    def between(self, hidden: Tensor, layer: int) -> Tensor:
        """What stands between two layers."""
        return hidden.relu()

    def gradients(self, inputs: Tensor, targets: Tensor) -> list[Tensor]:
        """Of the mean loss of each model over its samples.

        The sum over the models is what is differentiated: no model is in the loss of another.
        """
        losses = self.losses(inputs, targets)
        return list(torch.autograd.grad(losses.sum(), self.trained()))

    def trained(self) -> list[Tensor]:
        """All that an update changes."""
        return self.parameters

    def losses(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of each model."""
        scores = self.outputs(inputs).flatten(0, 1)
        each = cross_entropy(scores, targets.flatten(), reduction="none")
        return each.view(len(self), -1).mean(1)

    @torch.no_grad()
    def test(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Accuracy and loss of each model on the same samples."""
        scores = self.outputs(inputs.expand(len(self), -1, -1))
        right = (scores.argmax(-1) == targets).double().mean(1)
        each = cross_entropy(
            scores.flatten(0, 1), targets.repeat(len(self)), reduction="none"
        ).view(len(self), -1)
        loss = each.double().mean(1)
        # Scores that are no numbers have no largest: torch would count them as a guess.
        return right.masked_fill(~loss.isfinite(), torch.nan), loss


def alone(sizes: Sequence[int], seed: int) -> nn.Module:
    """One of the models, as a module."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return models.mlp(sizes)
