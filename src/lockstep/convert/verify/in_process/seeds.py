"""Set the same seeds at the start, before every batch and after every step."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.convert.verify.in_process.training_state import Now
from lockstep.keys import key
from lockstep.probes.recorder import Batch

SEED = 0


def install(now: Now) -> None:
    """Seed all generators; scripts that set seeds do so afterwards."""
    seed(SEED)
    # A seed from the clock becomes the common seed too.
    torch.seed = torch.random.seed = lambda: seed(SEED)
    fresh, left = np.random.default_rng, [0]

    def default_rng(given: Any = None) -> Any:
        if given is None and now.fetching:
            # Each sample has its own seed, in whatever order processes make them.
            given = int(np.random.randint(2**31))
        left[0] += given is None
        return fresh(key("default_rng", left[0]) if given is None else given)

    setattr(np.random, "default_rng", default_rng)  # noqa: B010
    state: list[Tensor] = []

    def batch(data: Any, batch: Batch) -> Any:
        if now.begun:
            seed(key("batch", now.steps, batch.number))
            state[:] = [torch.default_generator.get_state()]
        return data

    def stepped(_: Any) -> None:
        seed(key("step", now.steps))
        state[:] = [torch.default_generator.get_state()]

    def backward() -> None:
        if state and not torch.equal(state[0], torch.default_generator.get_state()):
            now.recorder.note("drew_itself", step=now.most_steps)

    now.recorder.on_batch.append(batch)
    now.recorder.on_backward.append(backward)
    now.recorder.on_stepped.append(stepped)


def seed(number: int) -> int:
    """Seed all generators of this process."""
    torch.default_generator.manual_seed(number)
    random.seed(number)
    np.random.seed(number & 0xFFFFFFFF)
    return number


def state() -> tuple[Tensor, Any, Any]:
    """Return the state of all generators of this process."""
    return torch.default_generator.get_state(), random.getstate(), np.random.get_state()


def restore(state: tuple[Tensor, Any, Any]) -> None:
    """Set the state of all generators of this process."""
    torch.default_generator.set_state(state[0])
    random.setstate(state[1])
    np.random.set_state(state[2])
