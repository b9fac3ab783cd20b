"""Pipeline parallelism, for models that are too large for one device: layers in stages.

Data parallelism gives every process the whole model and a part of the batch, and exchanges
gradients. Here every process has some of the layers and sees the whole batch. The processes
exchange the activations at the cuts, and their gradients on the way back. The batch is cut into
micro-batches, so that one stage works on the second while the next works on the first.

torch.distributed.pipelining sends and receives. The weights are those of one process with the same
micro-batches, bit for bit; other micro-batches change the order of a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from lockstep.engine.exchange.traffic import Traffic
from lockstep.engine.group import Group
from lockstep.errors import PlanError

if TYPE_CHECKING:
    # It takes more than a second to import, and torch's tensor parallelism with it.
    from torch.distributed.pipelining.schedules import PipelineScheduleSingle

Loss = Callable[[Tensor, Tensor], Tensor]


class Pipeline:
    """One stage of a model: the layers of this process, trained together with the others'.

    `step` leaves gradients in `module`, as backward would. Each process has an optimizer for its
    layers. Clipping, which needs all gradients together, takes more than that.
    """

    def __init__(
        self,
        layers: nn.Sequential,
        group: Group,
        *,
        loss: Loss,
        micro_batches: int = 4,
        schedule: type[PipelineScheduleSingle] | None = None,
    ) -> None:
        """Keep the layers of this process; `loss` gives one number for each sample.

        `schedule` is a class of torch.distributed.pipelining; default: Schedule1F1B.
        """
        size, rank = group.world.size, group.world.rank
        if micro_batches < 1:
            raise PlanError(f"{micro_batches} micro-batches: give 1 or more.")
        _check(layers, whole=size == 1 and micro_batches == 1)
        cuts = cut([_bytes(layer) for layer in layers], size)
        stretches = [layers[start:end] for start, end in pairwise(cuts)]
        _check_shared(stretches)
        self.layers = range(cuts[rank], cuts[rank + 1])
        """The numbers of this process's layers in the model."""
        self.module = stretches[rank].to(group.device)
        self.group, self.micro_batches, self.traffic = group, micro_batches, Traffic()
        self._loss, self._schedule = loss, schedule
        self._samples = 0
        self._schedules: dict[tuple[int, ...], PipelineScheduleSingle] = {}

    def step(self, inputs: Tensor, targets: Tensor) -> Tensor | None:
        """Run forward and backward on a batch, which every process gets; return the mean loss.

        Only the last stage knows the loss; the others return None.
        """
        self._samples = len(inputs)
        number = largest_part(self._samples, self.micro_batches)
        if self.group.alone:
            losses = []
            for x, y in zip(inputs.chunk(number), targets.chunk(number), strict=True):
                loss = self._part(self.module(x), y)
                loss.backward()
                losses.append(loss.detach())
            return torch.stack(losses).sum()
        schedule = self._schedule_for(inputs, number)
        self.traffic.begin()
        losses = []
        if self.group.world.rank == 0:
            schedule.step(inputs, return_outputs=False)
        elif self.is_last:
            schedule.step(target=targets, losses=losses, return_outputs=False)
        else:
            schedule.step(return_outputs=False)
        return torch.stack(losses).detach().sum() if losses else None

    @property
    def is_last(self) -> bool:
        """Whether this stage computes the loss."""
        return self.group.world.rank == self.group.world.size - 1

    def weights(self) -> dict[str, Tensor]:
        """Return parameters and buffers of the whole model by name; all processes take part."""
        # A slice of a Sequential keeps the names.
        own = {name: tensor.detach().cpu() for name, tensor in self.module.state_dict().items()}
        return {name: tensor for part in self.group.objects(own) for name, tensor in part.items()}

    def _part(self, outputs: Tensor, targets: Tensor) -> Tensor:
        # Of all samples of the batch, not of the micro-batch: then the parts add up to the mean.
        return self._loss(outputs, targets).sum() / self._samples

    def _schedule_for(self, inputs: Tensor, number: int) -> PipelineScheduleSingle:
        # A stage receives one fixed shape: an uneven last batch needs another schedule.
        shape = tuple(inputs.shape)
        if shape not in self._schedules:
            from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe

            from lockstep.engine.pipeline_stage import CountedStage

            world = self.group.world
            stage = CountedStage(self.module, world.rank, world.size, self.group.device)
            stage.traffic = self.traffic
            # 1F1B refuses fewer micro-batches than stages, where it would gain nothing.
            chosen = self._schedule or Schedule1F1B
            kind = chosen if number >= world.size else ScheduleGPipe
            self._schedules[shape] = kind(stage, number, loss_fn=self._part, scale_grads=False)
        return self._schedules[shape]


def cut(sizes: Sequence[int], parts: int) -> list[int]:
    """Return where to cut layers of these sizes so that the largest part is small.

    >>> cut([10, 0, 10, 0, 10, 0, 10], 2)
    [0, 4, 7]
    """
    if parts > len(sizes):
        raise PlanError(
            f"{len(sizes)} layers do not make {parts} stages. Use {len(sizes)} processes or fewer, "
            "or give the layers one by one in an nn.Sequential."
        )
    ends = [0]
    for left in range(parts, 1, -1):
        start, total = ends[-1], sum(sizes[ends[-1] :])
        # Every later stage keeps a layer. Of equal cuts the last, so that activations stay with
        # the layer that makes them.
        choices = range(start + 1, len(sizes) - left + 2)
        ends.append(min(choices, key=lambda e: (abs(sum(sizes[start:e]) - total / left), -e)))
    return [*ends, len(sizes)]


def largest_part(samples: int, most: int) -> int:
    """Return the largest number of equal parts, up to `most`, that `samples` can be cut into.

    >>> largest_part(64, 4), largest_part(37, 4), largest_part(30, 4)
    (4, 1, 3)
    """
    return max(n for n in range(1, most + 1) if samples % n == 0)


def _bytes(layer: nn.Module) -> int:
    return sum(p.nbytes for p in layer.parameters())


def _check(layers: nn.Sequential, *, whole: bool) -> None:
    """Refuse layers that would not compute what one process computes."""
    if whole:
        return
    odd: list[Any] = [m for m in layers.modules() if isinstance(m, _BatchNorm)]
    if odd:
        raise PlanError(
            f"{type(odd[0]).__name__} would see micro-batches instead of the batch, and the result "
            "would depend on their number. Use a norm over channels (GroupNorm, LayerNorm)."
        )
    if any(isinstance(m, _DropoutNd) and m.p > 0 for m in layers.modules()):
        raise PlanError(
            "dropout would draw from another generator on each process, and the result would "
            "depend on their number. Set its p to 0."
        )


def _check_shared(stretches: Sequence[nn.Module]) -> None:
    seen: set[int] = set()
    for stretch in stretches:
        own = {id(p) for p in stretch.parameters()}
        if own & seen:
            raise PlanError(
                "two stages share a parameter: each would train a copy of its own. Give the layers "
                "weights of their own, or use fewer processes."
            )
        seen |= own
