"""Add gradients over shards and replicas: DDP's way (fast), or in one fixed tree (exact).

Floating-point addition is not associative, so the order of the sum decides the last bits. In
exact mode the order is one binary tree over the shards of the global batch, whichever replica
computes them. The shards of a replica form whole subtrees, added as they come. Between replicas,
`all_to_all` gives each replica one chunk of everybody's gradient, it adds the pieces in tree order,
and `all_gather` returns the sums: as many bytes as a ring.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.errors import PlanError, RecipeError

# No `from __future__ import annotations` here: DDP checks the annotations of its hooks.
# Renamed in torch 2.13.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def _no_sync(model: nn.Module) -> AbstractContextManager[None]:
    assert isinstance(model, DistributedDataParallel)
    return model.no_sync()


class ExchangeWatch(Protocol):
    """Notes when an exchange begins and ends."""

    def exchange_begins(self) -> None:
        """Note that backward waits from here on."""
        ...

    def exchange_ends(self) -> None:
        """Note that backward continues."""
        ...


class FastReduce:
    """Leaves the exchange to DDP; one replica exchanges nothing."""

    def __init__(self, model: nn.Module, replicas: int) -> None:
        self.model, self.replicas = model, replicas
        self.weights: dict[int, Tensor] = {}

    def backward(self, loss: Tensor, items: int) -> None:
        """Run backward on a summed loss, weighted so that DDP's mean divides by `items`."""
        if items not in self.weights:
            self.weights[items] = torch.full_like(loss, self.replicas / items)
        loss.backward(self.weights[items])

    def part(self, number: int, of: int) -> AbstractContextManager[None]:
        """Surround forward and backward of part `number`: only the last of a step exchanges."""
        waits = isinstance(self.model, DistributedDataParallel) and number + 1 < of
        return _no_sync(self.model) if waits else nullcontext()


class ExactReduce:
    """Adds the gradients of all shards in one fixed binary tree, then divides by the items.

    In a plain loop: inside `part`, call backward on the weighted *sum* of a shard's losses.
    """

    def __init__(
        self,
        model: nn.Module,
        watch: ExchangeWatch | None = None,
        add: Callable[[Tensor], None] | None = None,
    ) -> None:
        """Use `add` for the sum over the replicas: it must work in place and in tree order."""
        self.model, self.watch, self.add = model, watch, add or tree_reduce
        self.listen: Callable[[dist.GradBucket, int], None] | None = None
        """Called with each bucket before it is added up over the replicas, and the items."""
        self.parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self.items = 1
        self.exchanged = 0
        """Parameters whose gradients DDP has exchanged in this step."""
        # Sums of whole subtrees that wait for their right-hand neighbour, by level.
        self.waiting: list[dict[Tensor, Tensor]] = []
        # Where DDP keeps each gradient, from the second step on.
        self.home: dict[Tensor, Tensor] = {}
        self.settled = False
        self.stream: torch.cuda.Stream | None = None

    @classmethod
    def attach(
        cls,
        model: nn.Module,
        watch: ExchangeWatch | None = None,
        add: Callable[[Tensor], None] | None = None,
    ) -> "ExactReduce":
        """Take over the exchange of a DDP model; of any other model, add the shards."""
        reduce = cls(model, watch, add)
        if isinstance(model, DistributedDataParallel):
            size = dist.get_world_size()
            if size & (size - 1):
                raise PlanError(
                    f"exact mode needs 1, 2, 4, 8 ... replicas, here are {size}: only these cut "
                    "the tree of the shards into whole subtrees."
                )
            model.register_comm_hook(reduce, _exchange)
        return reduce

    def weigh(self, loss: Tensor, items: int) -> Tensor:
        """Return the summed loss unchanged: the division by the batch's items follows the sum."""
        self.items = items
        return loss

    def backward(self, loss: Tensor, items: int) -> None:
        """Run backward on a summed loss."""
        self.weigh(loss, items).backward()

    @contextmanager
    def part(self, number: int, of: int) -> Iterator[None]:
        """Surround forward and backward of local shard `number`."""
        together = isinstance(self.model, DistributedDataParallel)
        last = number + 1 == of
        if number == 0:
            # What an interrupted step has left must not count in this one.
            self.waiting.clear()
            self.exchanged = 0
            # A gradient left over may be a view of DDP's bucket, which the last shard overwrites.
            for p in self.parameters:
                p.grad = None
        if number + 2 == of and self.home:
            # The last pair adds up where the exchange will look for it, in DDP's own buckets.
            torch._foreach_zero_(list(self.home.values()))
            for p, home in self.home.items():
                p.grad = home
        with _no_sync(self.model) if together and not last else nullcontext():
            yield
        gradients: dict[Tensor, Tensor] = {p: p.grad for p in self.parameters if p.grad is not None}
        if last and together and self.exchanged < len(self.parameters):
            raise RecipeError(
                "the last shard of a replica does not use all parameters, so DDP did not exchange "
                "the gradients and the other replicas would wait: are layers skipped at random? "
                "Write the loop with lockstep.Loop, which allows it, or train on one replica."
            )
        if last and together:
            # DDP changes the order of its buckets after the first step.
            self.home = gradients if self.settled else {}
            self.settled = True
            self.waiting.clear()
        elif last:
            for left in reversed(self.waiting):
                _add(gradients, left)
            _divide(list(gradients.values()), self.items)
            for p, gradient in gradients.items():
                p.grad = gradient
            self.waiting.clear()
        elif number % 2:
            # Autograd has added a pair in place. Add the finished subtrees to its left, then let
            # it wait, without a copy: the next shard starts with no gradient.
            done = number + 1
            while done % 4 == 0:
                _add(gradients, self.waiting.pop())
                done //= 2
            self.waiting.append(gradients)
            for p in gradients:
                p.grad = None


def _divide(gradients: list[Tensor], items: int) -> None:
    # The bits of a complex quotient depend on how the tensor lies in memory; those of its parts
    # do not.
    gradients = [torch.view_as_real(g) if g.is_complex() else g for g in gradients]
    torch._foreach_div_(gradients, items)
    # A sum that starts from zero has no -0, one that starts from a gradient may: make them equal.
    torch._foreach_add_(gradients, 0.0)


def _add(gradients: dict[Tensor, Tensor], left: dict[Tensor, Tensor]) -> None:
    """Add a subtree in place; a parameter counts as zero in shards that do not use it."""
    both = [p for p in gradients if p in left]
    if both:
        torch._foreach_add_([gradients[p] for p in both], [left[p] for p in both])
    for p in left:
        gradients.setdefault(p, left[p])


def _exchange(reduce: ExactReduce, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """A DDP communication hook: all_to_all, add in tree order, all_gather."""
    if reduce.watch is not None:
        reduce.watch.exchange_begins()
    if reduce.waiting:
        views = dict(zip(bucket.parameters(), bucket_views(bucket), strict=True))
        for left in reversed(reduce.waiting):
            _add(views, {p: left[p] for p in views if p in left})
    if reduce.listen is not None:
        reduce.listen(bucket, reduce.items)
    reduce.exchanged += len(bucket.parameters())
    buffer = bucket.buffer()
    future: torch.futures.Future[Tensor]
    if buffer.is_cuda and dist.get_backend() == "nccl":
        reduce.stream = reduce.stream or torch.cuda.Stream(buffer.device)

        def work() -> None:
            tree_reduce(buffer)
            _divide([buffer], reduce.items)

        future = on_stream(reduce.stream, buffer, work)
    else:
        # In host memory, while backward waits.
        host = buffer.cpu()
        reduce.add(host)
        if host is not buffer:
            buffer.copy_(host)
        # On the gradient's device: a GPU and a CPU divide with different bits.
        _divide([buffer], reduce.items)
        future = torch.futures.Future()
        future.set_result(buffer)
    if reduce.watch is not None:
        reduce.watch.exchange_ends()
    return future


def on_stream(
    stream: torch.cuda.Stream, buffer: Tensor, work: Callable[[], None]
) -> torch.futures.Future[Tensor]:
    """Run `work` on `buffer` in another stream, so that backward continues meanwhile."""
    stream.wait_stream(torch.cuda.current_stream(buffer.device))
    with torch.cuda.stream(stream):
        work()
        buffer.record_stream(stream)
        # The future carries the event.
        future: torch.futures.Future[Tensor] = torch.futures.Future(devices=[buffer.device])
        future.set_result(buffer)
    return future


def bucket_views(bucket: dist.GradBucket) -> list[Tensor]:
    """Return the gradients in a bucket, in the layout of their parameters.

    `bucket.gradients()` treats all of them as contiguous, which scrambles channels_last weights.
    """
    views, offset = [], 0
    for p in bucket.parameters():
        flat = bucket.buffer()[offset : offset + p.numel()]
        dense = torch.ops.aten.is_non_overlapping_and_dense(p)
        views.append(flat.as_strided(p.shape, p.stride()) if dense else flat.view(p.shape))
        offset += p.numel()
    return views


SLICE = 8 << 20
"""Elements that are exchanged at once, so that a huge bucket needs no second buffer like it."""


def tree_reduce(
    buffer: Tensor, sent: torch.dtype | None = None, group: dist.ProcessGroup | None = None
) -> None:
    """Replace `buffer` by the sum over all replicas, in tree order.

    If `sent` has fewer bits than the buffer, each replica rounds what it sends and the owner of a
    chunk rounds its sum; the sum itself is made in the buffer's type, and at least in float32.
    """
    for part in buffer.split(SLICE):
        _reduce_slice(part, sent or buffer.dtype, group)


def _reduce_slice(buffer: Tensor, dtype: torch.dtype, group: dist.ProcessGroup | None) -> None:
    size = dist.get_world_size()
    chunk = len(buffer) // size
    body, tail = buffer[: chunk * size], buffer[chunk * size :]
    narrow = dtype != buffer.dtype
    if chunk:
        sent = body.to(dtype) if narrow else body
        pieces = torch.empty_like(sent)
        dist.all_to_all_single(pieces, sent, group=group)
        if narrow:
            pieces = pieces.to(torch.promote_types(buffer.dtype, torch.float32))
        _all_gather(sent, tree_sum(list(pieces.chunk(size))).to(dtype), group=group)
        if narrow:
            body.copy_(sent)
    if len(tail):
        # Fewer elements than replicas: every replica adds them all, and nothing is rounded.
        tails = tail.new_empty(size * len(tail))
        _all_gather(tails, tail.contiguous(), group=group)
        tail.copy_(tree_sum(list(tails.chunk(size))))


def tree_sum(pieces: list[Tensor]) -> Tensor:
    """Add 1, 2, 4, 8 ... pieces as a balanced tree, in the memory of the first."""
    while len(pieces) > 1:
        pieces = [left.add_(right) for left, right in zip(pieces[::2], pieces[1::2], strict=True)]
    return pieces[0]
