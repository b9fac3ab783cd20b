"""Try to record or compile a step, and check that the result is still the same step.

All replicas take part in every attempt, and agree on its outcome.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
import torch.distributed as dist

from lockstep.data import Arrival
from lockstep.engine.checks.fingerprint import ROUNDINGS
from lockstep.engine.group import Group
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.plan import MOST_COMPILED
from lockstep.engine.replica import Replica
from lockstep.engine.sampler import Step
from lockstep.engine.step.cuda_graph import SHORT, Blocks, Captured
from lockstep.engine.step.metrics import Meter
from lockstep.engine.step.rollback import Rollback, distance, length
from lockstep.engine.step.training_step import Taken, TrainingStep
from lockstep.errors import LockstepError, raised

StepPath = Callable[[Step, list[Arrival]], Taken]
"""A way to execute a step."""
Ticket = tuple[Step, list[Arrival]]
"""A step that has not been taken yet, with its data."""

MOST_RECORDED = 64
"""The most micro-batches in one graph."""


class Attempts:
    """Ways to execute a step faster than eagerly, which may fail."""

    def __init__(
        self, job: Job, group: Group, replica: Replica, meter: Meter, eager: TrainingStep
    ) -> None:
        self.job, self.group, self.replica, self.meter = job, group, replica, meter
        self.eager, self.update, self.model = eager, replica.update, replica.model
        self.gpu = group.device.type == "cuda"

    def no_graph(self) -> str | None:
        """Return why this run cannot be recorded, if that is known beforehand."""
        if not self.gpu:
            return "the replicas compute on the CPU"
        if self.job.timeline:
            return "the timeline looks into the step"
        if self.job.noise:
            return "the noise scale looks at every gradient"
        if not self.group.alone and dist.get_backend() != "nccl":
            return "gloo exchanges gradients in host memory"
        if not self.group.alone and (reason := self.job.compression.graph_obstacle):
            return reason
        return self.update.obstacle

    def no_compile(self) -> str | None:
        """Return why this run is not compiled, if that is known beforehand."""
        if self.job.exact:
            return (
                "a compiler may order sums differently on another day, and exact mode promises bits"
            )
        if self.job.timeline:
            return "the timeline looks into the step"
        parts = self.job.plan.accumulation
        if self.model.norms and parts > MOST_COMPILED:
            return f"batch norm would be compiled for each of {parts} micro-batches"
        return None

    def _agreed(self, reason: str | None) -> str | None:
        """Return the first reason of any replica: all replicas choose the same path."""
        return next((r for r in self.group.objects(reason) if r is not None), None)

    def record(self, inner: TrainingStep, ticket: Ticket) -> tuple[Captured | None, str | None]:
        """Return the step as a graph, or the reason why not."""
        graph, reason = None, self._too_long(ticket[0])
        if self.eager.first.update_draws:
            reason = "the optimizer draws random numbers, which are seeded before each update"
        reason = reason or self._waits_for_host(inner, ticket)
        if self._agreed(reason) is None:
            update = self.update
            numbers, state, go_back = update.numbers(), update.state(), update.bookmark()
            try:
                torch.cuda.empty_cache()
                graph = Captured(inner, *ticket)
            except Exception as error:
                reason = _first_line(error)
                self._break_off()
            if update.numbers() != numbers:
                reason = "the optimizer counts in Python numbers, which a graph would not change"
            elif [id(tensor) for tensor in update.state()] != [id(tensor) for tensor in state]:
                reason = "the optimizer replaces its state, and a graph would not find the new one"
            if reason is not None:
                go_back()
            update.forget_gradients()
        reason = self._agreed(reason)
        return (graph if reason is None else None), reason

    @staticmethod
    def _too_long(step: Step) -> str | None:
        parts = len(step.parts)
        return f"a step has {parts} parts" if parts > MOST_RECORDED else None

    def in_blocks(self, path: StepPath, ticket: Ticket, spent: float) -> StepPath:
        """Return several steps in one graph if steps are short; the same path if not."""
        if not isinstance(path, Captured) or spent > SHORT:
            return path
        blocks = None
        # Data that fit on the device of this replica may not fit on another's.
        reason = None if Blocks.fits(path, *ticket) else "a step cannot be put off"
        if self._agreed(reason) is None:
            try:
                blocks = Blocks(path, *ticket)
            except Exception as error:
                reason = _first_line(error)
                self._break_off()
            self.update.forget_gradients()
            reason = self._agreed(reason)
        return path if blocks is None or reason is not None else blocks

    def _break_off(self) -> None:
        """Reset the generator, which a failed recording leaves in the recording state."""
        if self.gpu:
            generator = self.model.cuda_generator
            generator.graphsafe_set_state(generator.clone_state())

    def _waits_for_host(self, inner: TrainingStep, ticket: Ticket) -> str | None:
        """Take a step and take it back; return why it cannot be recorded, if it asks the device."""
        state = Rollback(self.replica, self.meter)
        mode = torch.cuda.get_sync_debug_mode()
        # A prototype, torch says. What it does not notice, the recording will.
        warnings.filterwarnings("ignore", message="Synchronization debug mode")
        try:
            inner.announce(ticket[0])
            torch.cuda.set_sync_debug_mode("error")
            inner.compute(*ticket)
        except LockstepError:
            raise
        except Exception as error:
            return raised("a step asks the device for a value", error)
        finally:
            torch.cuda.set_sync_debug_mode(mode)
            state.restore()
            self.update.forget_gradients()
        drew = self.model.cuda_generator.get_offset() > 0
        if drew and len(ticket[0].parts) > 1:
            return "layers draw from torch's own generator, which lockstep seeds for every part"
        return None

    def compile(
        self, ticket: Ticket, *, check: bool = False
    ) -> tuple[TrainingStep | None, Taken | None, str | None]:
        """Return a compiled step and the result of taking it; or why not, with no step taken."""
        state = Rollback(self.replica, self.meter)
        compiled, reason, taken = None, None, None
        try:
            compiled = TrainingStep(self.replica, self.meter, compiled=True)
            # The compiler cannot create the tensors that the first augmentation of an epoch does.
            self.eager.announce(ticket[0])
            self.eager.read(ticket[1][0])
            with warnings.catch_warnings():
                # Its warnings are of no use to the user.
                warnings.simplefilter("ignore")
                taken = compiled(*ticket)
        except LockstepError:
            raise
        except Exception as error:
            reason = _first_line(error)
        reason = self._agreed(reason)
        if compiled is not None and reason is None and check:
            state.restore()
            reason = self.differs(compiled, ticket, state)
            if reason is None:
                taken = compiled(*ticket)
        if reason is not None:
            state.restore()
            self.update.forget_gradients()
            return None, None, reason
        return compiled, taken, None

    def differs(self, path: StepPath, ticket: Ticket, state: Rollback | None = None) -> str | None:
        """Take a step both ways and take it back; say if they differ by more than rounding.

        The bound is measured: a third step starts from weights that are moved by one rounding
        each. What that changes, times the roundings of a layer, is the bound, plus one rounding of
        the step and one of the weights that it ends in.
        """
        state = state or Rollback(self.replica, self.meter)
        path(*ticket)
        theirs = state.weights_moved()
        state.restore()
        self.eager(*ticket)
        ours = state.weights_moved()
        state.restore()
        if self.job.exact:
            same = all(torch.equal(a, b) for a, b in zip(theirs, ours, strict=True))
            return self._agreed(None if same else "its bits are not those of eager steps")
        state.nudge()
        self.eager(*ticket)
        nudged = state.weights_moved(nudged=True)
        state.restore()
        difference, noise, size = distance(theirs, ours), distance(nudged, ours), length(ours)
        bound = ROUNDINGS * noise + state.unit * size + state.rounding()
        reason = None
        if not difference <= bound:
            reason = (
                f"it would change the weights differently from eager steps: by {difference:.2g} "
                f"where rounding explains {bound:.2g}"
            )
        return self._agreed(reason)


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no message'}"
