"""Measure where a step's time goes: its fifteen parts, on every replica.

A mark ends a part. On the CPU it is a clock reading, on the GPU an event in the stream, read only
when the run ends. Without `--timeline` the engine uses a `StepWatch`, which does nothing.
"""

import time
from collections.abc import Iterator
from statistics import fmean
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.data import Watch
from lockstep.engine.exchange.hooks import Hook

PARTS = (
    "read data",
    "transport",
    "pre-process",
    "queue",
    "transport to the device",
    "activations layer 1",
    "activations layer 2",
    "output",
    "loss",
    "backpropagate layer 3",
    "backpropagate layer 2",
    "backpropagate layer 1",
    "optimizer step",
    "weight update",
    "return control",
)
WAITING = "all-reduce, not hidden"
EXCHANGE = "all-reduce"
BETWEEN = "evaluation, checkpoint"
"""What happens between two steps and belongs to neither."""
KEPT_STEPS = 200
"""How many of the last steps the averages hold: the first steps are not typical."""


class _Span(NamedTuple):
    part: str
    start: Any
    end: Any


class StepWatch(Watch):
    """Hooks for each point of a step that a timeline measures. They do nothing here."""

    def begin(self) -> None:
        """Start a step."""

    def backward_ends(self, exchanged: bool) -> None:
        """End a backward pass, which waited for the exchange if it `exchanged`."""

    def result(self) -> dict[str, Any] | None:
        """Return what was measured."""
        return None


class Timeline(StepWatch):
    """The parts of the last steps of one replica."""

    def __init__(self, device: torch.device) -> None:
        self.gpu = device.type == "cuda"
        self.origin = self._now()
        self.last = self.origin
        self.steps: list[list[_Span]] = []
        self.beside: list[list[_Span]] = []
        self.backward_part = PARTS[9]

    def _now(self) -> Any:
        if not self.gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def begin(self) -> None:
        """Start a step."""
        self.steps = [*self.steps[1 - KEPT_STEPS :], []]
        self.beside = [*self.beside[1 - KEPT_STEPS :], []]
        self.last = self._now()

    def mark(self, part: str) -> None:
        """Count the time since the last mark as `part`."""
        now = self._now()
        if self.steps and part != BETWEEN:
            self.steps[-1].append(_Span(part, self.last, now))
        self.last = now

    def span(self, part: str, start: Any, end: Any) -> None:
        """Note something that happened beside the step from `start` to `end`."""
        if self.beside:
            self.beside[-1].append(_Span(part, start, end))

    def watch_layers(self, model: nn.Module) -> None:
        """Mark the ends of the first and the second third of the layers, forward and backward."""
        layers = list(layers_of(model))
        thirds = [len(layers) // 3, 2 * len(layers) // 3]
        for number, end in enumerate(thirds):
            if end == 0 or (number and end == thirds[0]):
                continue
            layers[end - 1].register_forward_hook(self._layer_hook(number))

    def _layer_hook(self, number: int) -> Any:
        def backward(gradient: Tensor) -> None:
            self.mark(self.backward_part)
            self.backward_part = PARTS[11 - number]

        def forward(module: nn.Module, inputs: Any, output: Any) -> None:
            if not torch.is_grad_enabled():
                return
            self.mark(PARTS[5 + number])
            if isinstance(output, Tensor) and output.requires_grad:
                output.register_hook(backward)

        return forward

    def watch_exchange(self, model: DistributedDataParallel, exchange: Hook) -> None:
        """Register `exchange` in a hook that notes when each bucket starts and ends."""

        def hook(_: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
            start = self._now()
            if bucket.is_last():
                self.mark(self.backward_part)

            def done(future: torch.futures.Future[Tensor]) -> Tensor:
                self.span(EXCHANGE, start, self._now())
                return future.value()

            return exchange(bucket).then(done)

        model.register_comm_hook(None, hook)

    def exchange_begins(self) -> None:
        """Note that backward waits for an exchange from here on."""
        self.mark(self.backward_part)

    def exchange_ends(self) -> None:
        """Note that the exchange has ended."""
        start = self.last
        self.mark(WAITING)
        self.span(EXCHANGE, start, self.last)

    def backward_ends(self, exchanged: bool) -> None:
        """End a backward pass: the time since the last mark is waiting if it `exchanged`."""
        self.mark(WAITING if exchanged else self.backward_part)
        self.backward_part = PARTS[9]

    def result(self) -> dict[str, Any]:
        """Return the mean milliseconds of each part, and the last steps in detail."""
        if self.gpu:
            torch.cuda.synchronize()
        steps = [[self._seconds(span) for span in spans] for spans in self.steps]
        beside = [[self._seconds(span) for span in spans] for spans in self.beside]
        names = (*PARTS, WAITING)
        parts = {name: 1e3 * fmean([_total(spans, name) for spans in steps]) for name in names}
        for name in PARTS[:2]:
            # With data workers these happen in other processes, beside the step.
            parts[name] += 1e3 * fmean([_total(spans, name) for spans in beside])
        return {
            "parts": parts,
            "exchange": 1e3 * fmean([_total(spans, EXCHANGE) for spans in beside]),
            "step": 1e3 * fmean([sum(end - start for _, start, end in spans) for spans in steps]),
            "detail": [
                {"step": [list(s) for s in spans], "beside": [list(s) for s in others]}
                for spans, others in zip(steps[-3:], beside[-3:], strict=True)
            ],
        }

    def _seconds(self, span: _Span) -> tuple[str, float, float]:
        """Return a span in seconds; host clock readings stay, events count from the origin."""
        times = [
            self.origin.elapsed_time(t) / 1e3 if isinstance(t, torch.cuda.Event) else t
            for t in (span.start, span.end)
        ]
        return span.part, times[0], times[1]


def _total(spans: list[tuple[str, float, float]], part: str) -> float:
    return sum(end - start for name, start, end in spans if name == part)


def layers_of(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of a model in order; open containers, keep every other module whole."""
    children = list(model.children())
    if len(children) == 1:
        yield from layers_of(children[0])
        return
    for child in children:
        if isinstance(child, nn.Sequential | nn.ModuleList):
            yield from layers_of(child)
        else:
            yield child
