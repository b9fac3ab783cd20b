"""Train many small models as one computation.

The weights of models with the same shape are stacked, so a layer of all models is one batched
product. One training of a stack replaces a loop over a hundred training runs, and the models do not
affect each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lockstep import models


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
