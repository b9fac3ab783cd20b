"""Checks of the first step: refuse a model that depends on the number of replicas."""

from __future__ import annotations

from typing import Any

import torch

from lockstep.console import Progress
from lockstep.data.keyed import host_states
from lockstep.engine.checks.suspects import check_generators, refuse_closure
from lockstep.engine.model import RecipeModel
from lockstep.engine.recipe.prepare import some
from lockstep.engine.sampler import Step
from lockstep.engine.step.update import Update
from lockstep.errors import RecipeError
from lockstep.layers.per_shard import unkeyed


class FirstStep:
    """Checks of a model, made once, because every step does the same."""

    def __init__(
        self, model: RecipeModel, update: Update, progress: Progress, *, exact: bool
    ) -> None:
        """Warn of layers whose random numbers depend on the number of replicas."""
        self.model, self.update, self.progress, self.exact = model, update, progress, exact
        self.done = False
        refuse_closure(update.optimizer)
        if text := check_generators(update.optimizer, exact=exact):
            progress.warn(text)
        self.update_draws = False
        """Whether the optimizer drew random numbers in the first step."""
        self._odd = unkeyed(model.module)
        if not exact and self._odd:
            progress.warn(
                f"{', '.join(self._odd)}: randomness of these layers is keyed per shard in exact "
                "mode only; in fast mode it changes with the number of replicas."
            )
        self._counters: dict[str, Any] = {}
        self._host: tuple[Any, ...] = ()

    def after_backward(self) -> None:
        """Refuse unused parameters, and warn of random numbers that depend on the replicas."""
        self.done = True
        named = self.model.module.named_parameters()
        unused = [name for name, p in named if p.requires_grad and p.grad is None]
        if unused:
            raise RecipeError(
                f"the loss does not depend on {some(unused)}: DDP would wait for their gradients. "
                "Take them out of the model, or freeze them with requires_grad_(False)."
            )
        if not self.exact and not self._odd and self._draws():
            self.progress.warn(
                "the model draws from torch's own generator (functional dropout, torch.rand): "
                "keyed per shard in exact mode only; in fast mode it changes with the number of "
                "replicas. nn.Dropout does not."
            )
        self._counters = self.update.counters()

    def refuse_missing(self, step: int) -> None:
        """Refuse a step that does not use all parameters: other replicas would wait for ever."""
        if any(p.grad is None for p in self.update.parameters):
            named = self.model.module.named_parameters()
            unused = [name for name, p in named if p.requires_grad and p.grad is None]
            raise RecipeError(
                f"in step {step} the loss does not depend on {some(unused)}, as it did before: "
                "layers that are skipped at random leave the other replicas waiting. Write the "
                "loop with lockstep.Loop, which allows it, or train on one replica."
            )

    def before_update(self, step: Step) -> None:
        """Let the optimizer draw the same random numbers on every replica."""
        self.model.seed_update(step)
        self._host = host_states()

    def after_update(self) -> None:
        """Warn of what the optimizer counts and a checkpoint would miss; note if it draws."""
        gpu = self.model.device.type == "cuda" and self.model.cuda_generator.get_offset() > 0
        self.update_draws = gpu or host_states() != self._host
        after = self.update.counters()
        if changed := [n for n, value in after.items() if self._counters.get(n) != value]:
            kind = type(self.update.optimizer).__name__
            self.progress.warn(
                f"{kind} counts in {some([f'{kind}.{name}' for name in changed])}, which is in no "
                "checkpoint: a resumed run would differ. Keep it in the optimizer's state[p]."
            )

    def _draws(self) -> bool:
        """Tell whether anything has drawn from torch's generator since it was last seeded."""
        if self.model.device.type == "cuda":
            return self.model.cuda_generator.get_offset() > 0
        fresh = torch.Generator().manual_seed(torch.default_generator.initial_seed())
        return not torch.equal(fresh.get_state(), torch.default_generator.get_state())
