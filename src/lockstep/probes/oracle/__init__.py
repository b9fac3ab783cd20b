"""The gradient oracle: one process repeats the first step of several ranks on the same batch.

The ranks keep their first step: the batches, the parameters before it, the gradient after it. A
second run of the script, on one rank, gets the same parameters and all batches joined. Its gradient
is what the ranks' gradient should be. Batch norm and dropout would differ in one large batch by
nature, so that process computes them rank by rank.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import torch
from torch.optim.optimizer import Optimizer

from lockstep.probes.oracle.keep import Keeper
from lockstep.probes.oracle.repeat import Repeater
from lockstep.probes.patching import replaces
from lockstep.probes.recorder import Recorder


def install(recorder: Recorder) -> None:
    """Keep the first step, or repeat one that was kept."""
    optimizers: WeakSet[Optimizer] = WeakSet()
    recorder.on_optimizer.append(optimizers.add)
    listener: Keeper | Repeater
    if recorder.settings.oracle is None:
        keeper = listener = Keeper(recorder, optimizers)
        recorder.on_backward.append(keeper.backward)

        @replaces("__enter__", torch.autocast)
        def entered(enter: Any, self: Any) -> Any:
            keeper.cast(self)
            return enter(self)
    else:
        listener = Repeater(recorder, optimizers, recorder.settings.oracle)
    recorder.on_batch.append(listener.batch)
    recorder.on_step.append(listener.step)
