"""Watch DDP in a step: when each gradient is ready, and when each bucket travels.

DDP puts parameters into buckets and adds a bucket over the replicas as soon as all of its gradients
are there, beside the rest of the backward pass. In the first step DDP does not know the order of
the gradients and uses one bucket for all; from then on buckets follow that order.
"""

# No annotations from the future here: DDP looks at those of its hook.
import time
from collections.abc import Callable, Collection
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.engine.exchange.hooks import all_reduce
from lockstep.engine.group import Group

Notes = dict[str, Any]


class Buckets:
    """A model in DDP that notes what happens to its gradients."""

    def __init__(
        self,
        model: nn.Module,
        group: Group,
        *,
        cap_mb: float | None = None,
        keep: Collection[str] = (),
    ) -> None:
        """Wrap `model` with buckets of `cap_mb` MiB; None: as large as DDP chooses.

        Keep the gradients before the exchange of the parameters named in `keep`.
        """
        self.group = group
        self.model = DistributedDataParallel(model, bucket_cap_mb=cap_mb)
        self.local: dict[str, Tensor] = {}
        """Gradients that are kept, as they were in the last step before the exchange."""
        self._keep = frozenset(keep)
        self._names = {id(p): name for name, p in model.named_parameters()}
        self._layers: list[Notes] = []
        self._ready: list[Notes] = []
        self._buckets: list[Notes] = []
        for name, layer in model.named_modules():
            own = [self._names[id(p)] for p in layer.parameters(recurse=False)]
            if own:
                layer.register_forward_hook(self._passed(name, own))
        for name, parameter in model.named_parameters():
            parameter.register_post_accumulate_grad_hook(self._accumulated(name))
        self.model.register_comm_hook(None, self._exchange)

    def step(self, loss: Callable[[nn.Module], Tensor]) -> Notes:
        """Run forward and backward of one step; return what was noted, in milliseconds.

        Times count from the moment at which the first replica began the backward pass. GPUs have no
        common clock: there, each replica counts from its own beginning.
        """
        self._layers, self._ready, self._buckets = [], [], []
        value = loss(self.model)
        start = self._now()
        value.backward()
        end = self._now()
        if self.group.device.type == "cuda":
            torch.cuda.synchronize(self.group.device)
            origin = start
        else:
            origin = min(self.group.objects(start))
        ready = {one["name"]: _since(origin, one["at"]) for one in self._ready}
        return {
            "start": _since(origin, start),
            "end": _since(origin, end),
            "layers": [
                {
                    "name": one["name"],
                    "start": _since(origin, one["start"]),
                    "end": max(ready[name] for name in one["parameters"]),
                }
                for one in self._layers
            ],
            "ready": [{"name": name, "at": at} for name, at in ready.items()],
            "buckets": [
                one | {"start": _since(origin, one["start"]), "end": _since(origin, one["end"])}
                for one in self._buckets
            ],
        }

    def _now(self) -> Any:
        if self.group.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _passed(self, name: str, parameters: list[str]) -> Any:
        """Note when the backward pass of a layer begins: the gradient of its output is there."""

        def enter(gradient: Tensor) -> None:
            self._layers.append({"name": name, "parameters": parameters, "start": self._now()})

        def passed(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor) and output.requires_grad:
                output.register_hook(enter)

        return passed

    def _accumulated(self, name: str) -> Any:
        def accumulate(parameter: Tensor) -> None:
            self._ready.append({"name": name, "at": self._now()})

        return accumulate

    def _exchange(self, _: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """Average a bucket as DDP does, and note when that begins and ends."""
        names = [self._names[id(p)] for p in bucket.parameters()]
        self.local |= {
            name: gradient.clone()
            for name, gradient in zip(names, bucket.gradients(), strict=True)
            if name in self._keep
        }
        content = bucket.buffer()
        own = {
            "number": bucket.index(),
            "parameters": names,
            "bytes": content.numel() * content.element_size(),
            "start": self._now(),
        }
        self._buckets.append(own)

        def done(future: torch.futures.Future[Tensor]) -> Tensor:
            own["end"] = self._now()
            return future.value()

        return all_reduce(bucket).then(done)


def _since(origin: Any, moment: Any) -> float:
    """Return the milliseconds from `origin` to `moment`."""
    if isinstance(moment, torch.cuda.Event):
        return round(origin.elapsed_time(moment), 4)
    return round(1e3 * (moment - origin), 4)
