"""What the replicas send each other in fast mode, where DDP's own all-reduce is not the best.

An exchange gets the flat gradients of some parameters and replaces them by their mean over all
replicas. `Wire` makes a DDP hook of it that runs beside backward.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from lockstep.engine.exchange.reduce import ExchangeWatch, on_stream, tree_reduce
from lockstep.engine.exchange.shared_memory import Board

# No `from __future__ import annotations` here: DDP checks the annotations of its hooks.
Exchange = Callable[[list[Tensor], Tensor, dist.ProcessGroup | None], None]


def bf16(parameters: list[Tensor], buffer: Tensor, group: dist.ProcessGroup | None) -> None:
    """Half the bytes: bfloat16 travels, sums are made in float32.

    Every replica rounds its gradient and the owner rounds the sum, each by at most 2**-8 of what is
    rounded: the mean is off by less than 2**-7 * 1.01 of the mean of the absolute gradients.
    """
    tree_reduce(buffer, torch.bfloat16, group)
    buffer.div_(dist.get_world_size())


LANES = 2
"""Threads over gloo: one bucket is rounded and added up while another travels."""


class Wire:
    """Runs an exchange for each bucket while backward goes on.

    With NCCL on a stream of its own. With gloo in threads, each with a group of its own: exchanges
    of one group must come in the same order everywhere, and between threads, or beside the ones
    that synchronised batch norm makes in backward, the order is by chance.
    """

    def __init__(self, exchange: Exchange, timeout: float) -> None:
        self.exchange = exchange
        self.stream: torch.cuda.Stream | None = None
        self.lanes: list[tuple[ThreadPoolExecutor, dist.ProcessGroup]] = []
        if dist.get_backend() != "nccl":
            self.lanes = [
                (ThreadPoolExecutor(1), dist.new_group(timeout=timedelta(seconds=timeout)))
                for _ in range(LANES)
            ]

    def __call__(self, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """The mean of a bucket, some time later."""
        buffer, parameters = bucket.buffer(), bucket.parameters()
        if not self.lanes:
            self.stream = self.stream or torch.cuda.Stream(buffer.device)
            return on_stream(self.stream, buffer, lambda: self.exchange(parameters, buffer, None))
        thread, group = self.lanes[bucket.index() % LANES]
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        if buffer.is_cuda:
            # gloo exchanges in host memory; GPUs use it in tests only, so backward may wait.
            host = buffer.cpu()
            self.exchange(parameters, host, group)
            future.set_result(buffer.copy_(host))
            return future
        thread.submit(self._work, parameters, buffer, group, future)
        # torch hands an exception on only when someone asks for the value.
        return future.then(lambda done: done.value())

    def _work(
        self,
        parameters: list[Tensor],
        buffer: Tensor,
        group: dist.ProcessGroup,
        future: torch.futures.Future[Tensor],
    ) -> None:
        try:
            self.exchange(parameters, buffer, group)
        except Exception as error:
            # Backward waits for this future and must not wait forever.
            future.set_exception(error)  # type: ignore[arg-type]
        else:
            future.set_result(buffer)


class AtOnce:
    """Backward stops for each bucket while it is added up on a board."""

    def __init__(self, board: Board, watch: ExchangeWatch | None = None) -> None:
        self.board, self.watch = board, watch

    def __call__(self, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """The mean of a bucket, now."""
        if self.watch is not None:
            self.watch.exchange_begins()
        # Divided first, as DDP does: a sum may be too large where the mean is not.
        self.board.add(buffer := bucket.buffer().div_(self.board.size))
        if self.watch is not None:
            self.watch.exchange_ends()
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        future.set_result(buffer)
        return future


def attach(
    model: DistributedDataParallel,
    exchange: Callable[[dist.GradBucket], torch.futures.Future[Tensor]],
) -> None:
    """Let `exchange` take over what a DDP model sends."""
    model.register_comm_hook(exchange, _hook)


def _hook(
    exchange: Callable[[dist.GradBucket], torch.futures.Future[Tensor]], bucket: dist.GradBucket
) -> torch.futures.Future[Tensor]:
    return exchange(bucket)
