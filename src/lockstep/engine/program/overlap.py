"""Let gradients travel while backward still computes others, in fast mode over NCCL or gloo.

In its first step a replica only watches: in which order the gradients become ready, and whether any
becomes ready twice (as with reentrant activation checkpointing). Then all replicas agree on buckets
in the order of the first replica. From then on, a bucket starts to travel as soon as its last
gradient is ready, and all buckets start in the same order on every replica.
"""

from __future__ import annotations

from functools import partial

import torch.distributed as dist
from torch import Tensor

from lockstep.engine.exchange.link import best_bucket, measure
from lockstep.engine.program.exchange import Carrier, GradientExchange
from lockstep.engine.program.tree import Gradients
from lockstep.errors import RecipeError

LEAST = 1 << 20
"""Bytes of gradients below which one message for all of them is fastest."""


class Overlap:
    """Follows the backward passes of one optimizer's parameters, and sends what is ready."""

    def __init__(self, carrier: Carrier, parameters: list[Tensor], shards: int) -> None:
        self.carrier, self.parameters, self.shards = carrier, parameters, shards
        self.ready: list[int] = []
        """Parameters in the order in which their gradients became ready, in the first step."""
        self.exchange: GradientExchange | None = None
        self.plain: GradientExchange | None = None
        """Adds all gradients in one go, before a step was watched."""
        self.followed = False
        """Whether all replicas have watched a step."""
        self.watching = False
        """Whether backward runs now for the last part of a step."""
        self.place: dict[int, int] = {}
        """The bucket of each parameter."""
        self.missing: list[int] = []
        """How many gradients each bucket waits for."""
        self.fired: set[int] = set()
        self.others: list[Gradients] = []
        """Sums of gradients of earlier parts of the step."""
        self.under_way: list[dist.Work] = []
        self.hooks = [
            p.register_post_accumulate_grad_hook(partial(self._fired, number))
            for number, p in enumerate(parameters)
        ]

    def close(self) -> None:
        """Stop following the parameters."""
        for hook in self.hooks:
            hook.remove()

    def begin(self, others: list[Gradients]) -> None:
        """Announce the last backward pass of a step; `others` are the sums of the parts before."""
        self.watching, self.followed, self.others = True, True, others
        self.fired.clear()
        if self.exchange is not None:
            self.missing = [len(bucket.members) for bucket in self.exchange.buckets]

    def complete(self, gradients: Gradients) -> None:
        """Send all but the last bucket, after the last backward pass, which left `gradients`.

        All replicas must have started them before they exchange anything else.
        """
        self.watching = False
        if self.exchange is not None:
            for number in range(len(self.under_way), len(self.exchange.buckets) - 1):
                self._start(number, gradients)
        self.others = []

    def _fired(self, number: int, parameter: Tensor) -> None:
        if not self.watching:
            return
        if self.exchange is None:
            self.ready.append(number)
            return
        if number in self.fired:
            if self.place[number] < len(self.under_way):
                raise RecipeError(
                    "a parameter got a second gradient after the first one had been sent to the "
                    "other replicas: a layer is used twice under "
                    "torch.utils.checkpoint(use_reentrant=True), and was not in the first step. "
                    "Use use_reentrant=False."
                )
            return
        self.fired.add(number)
        self.missing[self.place[number]] -= 1
        # The last bucket also carries the table, which is written after backward.
        last = len(self.missing) - 1
        while (now := len(self.under_way)) < last and not self.missing[now]:
            self._start(now, [p.grad for p in self.parameters])

    def _start(self, number: int, own: Gradients) -> None:
        assert self.exchange is not None
        bucket = self.exchange.buckets[number]
        self.exchange.fill(bucket, own, *self.others)
        self.under_way.append(self.carrier.start(bucket.buffer))

    def __call__(self, gradients: Gradients, table: Tensor) -> tuple[Gradients, Tensor]:
        """Return the sums of gradients and tables over all replicas, as `GradientExchange` does."""
        if self.exchange is None and self.followed:
            self._agree()
        exchange = self.exchange
        if exchange is None:
            # A step whose loss sees the whole batch has several backward passes.
            self.plain = self.plain or GradientExchange(self.carrier, self.parameters, self.shards)
            return self.plain(gradients, table)
        if not self.under_way:
            return exchange(gradients, table)
        exchange.fill(exchange.buckets[-1], gradients)
        exchange.announce(gradients, table)
        self.under_way.append(self.carrier.start(exchange.buckets[-1].buffer))
        for work in self.under_way:
            work.wait()
        self.under_way.clear()
        return exchange.sums(gradients)

    def _agree(self) -> None:
        """Choose the buckets, the same on all replicas, after the first step."""
        twice = len(set(self.ready)) < len(self.ready)
        answers = self.carrier.group.objects((twice, self.ready), "overlap")
        if any(odd for odd, _ in answers):
            # Its gradients are ready only when backward has ended.
            self.close()
            self.exchange = GradientExchange(self.carrier, self.parameters, self.shards)
        else:
            order = answers[0][1]
            known = set(order)
            order = order + [n for n in range(len(self.parameters)) if n not in known]
            total = sum(p.numel() * p.element_size() for p in self.parameters)
            size = float("inf")
            if total > LEAST:
                size = best_bucket(measure(self.carrier.group), total)
            self.exchange = GradientExchange(
                self.carrier, self.parameters, self.shards, order=order, bucket_bytes=size
            )
        self.place = {
            n: number for number, b in enumerate(self.exchange.buckets) for n in b.members
        }
