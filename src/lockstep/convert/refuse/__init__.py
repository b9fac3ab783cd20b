"""Reasons not to convert a script: data parallelism would change the method.

One reason per file: `look` finds its places. Where nothing is certain, nothing is said.

    refusal    what a refusal is
    losses     each backward, and all that its loss is made of
    pairs      expressions that set every sample of a batch against every other
    steady     what stays the same from turn to turn
"""

from __future__ import annotations

from types import ModuleType

from lockstep.convert.refuse import (
    batch_loss,
    by_hand,
    closure,
    double_backward,
    environment,
    full_graph,
    layer_local,
    no_training,
    not_pytorch,
    replay_buffer,
    several_processes,
)
from lockstep.convert.refuse.refusal import Refusal
from lockstep.source.training import Training

__all__ = ["Refusal", "refusals"]

_OTHERS = not_pytorch, several_processes
"""Reasons that leave nothing else to say."""
_REASONS = (
    environment,
    replay_buffer,
    closure,
    layer_local,
    by_hand,
    double_backward,
    batch_loss,
    full_graph,
)


def refusals(training: Training) -> list[Refusal]:
    """Why a program cannot be converted, the first place of each reason; nothing if it can.

    Programs that train on several replicas already, by themselves or with a framework, are no
    matter of this.
    """
    if training.framework is not None or training.distributed:
        return []
    return (
        _first(training, *_OTHERS)[:1]
        or _first(training, *_REASONS)
        or _first(training, no_training)
    )


def _first(training: Training, *reasons: ModuleType) -> list[Refusal]:
    """The first place of each reason that holds."""
    found = [next(iter(reason.look(training)), None) for reason in reasons]
    return [refusal for refusal in found if refusal is not None]
