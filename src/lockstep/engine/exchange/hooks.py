"""DDP communication hooks: who averages a bucket of gradients, and whether backward waits for it.

A hook gets a bucket and returns a future that holds the mean over all replicas.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from lockstep.engine.exchange.compression.choice import Average
from lockstep.engine.exchange.reduce import ExchangeWatch, on_stream
from lockstep.engine.exchange.shared_memory import SharedMemory

# No `from __future__ import annotations` here: DDP checks the annotations of its hooks.
Hook = Callable[[dist.GradBucket], torch.futures.Future[Tensor]]


def divide(gradient: Tensor, replicas: int) -> Tensor:
    """Divide in place with the bits of DDP, which multiplies by the reciprocal."""
    return gradient.mul_(1.0 / replicas)


def all_reduce(bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """Average a bucket as DDP does without a hook, to the bit."""
    # Divided before the sum, as DDP does: a sum may overflow where the mean does not.
    buffer = divide(bucket.buffer(), dist.get_world_size())
    return dist.all_reduce(buffer, async_op=True).get_future().then(lambda _: buffer)


LANES = 2
"""Threads over gloo: one rounds and adds up a bucket while the other one's bucket travels."""


class OverlappedExchange:
    """Averages each bucket while backward continues.

    With NCCL it works on another stream. With gloo it works in threads that have one group each:
    exchanges of one group must have the same order on all replicas, and the order between threads,
    or beside the exchanges of synchronised batch norm in backward, is left to chance.
    """

    def __init__(self, average: Average, timeout: float) -> None:
        self.average = average
        self.stream: torch.cuda.Stream | None = None
        self.lanes: list[tuple[ThreadPoolExecutor, dist.ProcessGroup]] = []
        if dist.get_backend() != "nccl":
            self.lanes = [
                (ThreadPoolExecutor(1), dist.new_group(timeout=timedelta(seconds=timeout)))
                for _ in range(LANES)
            ]

    def __call__(self, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """Start to average a bucket."""
        buffer, parameters = bucket.buffer(), bucket.parameters()
        if not self.lanes:
            self.stream = self.stream or torch.cuda.Stream(buffer.device)
            return on_stream(self.stream, buffer, lambda: self.average(parameters, buffer, None))
        thread, group = self.lanes[bucket.index() % LANES]
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        if buffer.is_cuda:
            # gloo exchanges in host memory; GPUs use it in tests only, so backward may wait.
            host = buffer.cpu()
            self.average(parameters, host, group)
            future.set_result(buffer.copy_(host))
            return future
        thread.submit(self._work, parameters, buffer, group, future)
        # torch raises an exception only where the value is asked for.
        return future.then(lambda done: done.value())

    def _work(
        self,
        parameters: list[Tensor],
        buffer: Tensor,
        group: dist.ProcessGroup,
        future: torch.futures.Future[Tensor],
    ) -> None:
        try:
            self.average(parameters, buffer, group)
        except Exception as error:
            # Backward waits for this future and must not wait forever.
            future.set_exception(error)  # type: ignore[arg-type]
        else:
            future.set_result(buffer)


class BlockingExchange:
    """Averages each bucket in shared memory while backward waits."""

    def __init__(self, memory: SharedMemory, watch: ExchangeWatch | None = None) -> None:
        self.memory, self.watch = memory, watch

    def __call__(self, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """Average a bucket before returning."""
        if self.watch is not None:
            self.watch.exchange_begins()
        # Divided before the sum, as DDP does: a sum may overflow where the mean does not.
        self.memory.add(buffer := divide(bucket.buffer(), self.memory.size))
        if self.watch is not None:
            self.watch.exchange_ends()
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        future.set_result(buffer)
        return future


def attach(model: DistributedDataParallel, hook: Hook) -> None:
    """Let `hook` average the gradients of a DDP model."""
    model.register_comm_hook(hook, _call)


def _call(hook: Hook, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    return hook(bucket)
