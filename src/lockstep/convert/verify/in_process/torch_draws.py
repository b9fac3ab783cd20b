"""Key torch's random numbers in training: each rank takes its rows of a global draw.

If a draw has a row for every sample of the batch, the row follows from the sample. If it is smaller
than in the original by the number of ranks, every rank draws the whole and takes its part. Every
other draw is the same on all ranks.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.jit._builtins import _find_builtin, _register_builtin

from lockstep.convert.verify.in_process.training_state import Now
from lockstep.keys import key
from lockstep.probes.recorder import is_ours

Shape = tuple[int, ...]
IN_PLACE = "normal_ uniform_ random_ exponential_ geometric_ cauchy_ log_normal_"
_LOADING = "/torch/utils/data/"
RANKS = 12
"""Any number of ranks that divides this gives each sample partners on its own rank."""
_randperm = torch.randperm


def install(now: Now) -> None:
    """Replace torch's functions that draw random numbers."""
    draws = Draws(now)
    for name in IN_PLACE.split():
        draws.replace(Tensor, name, partial(draws.in_place, name))
    draws.replace(Tensor, "bernoulli_", draws.bernoulli_)
    for name, fill in (("rand", "uniform_"), ("randn", "normal_")):
        draws.replace(torch, name, partial(draws.factory, fill, "empty"))
        draws.replace(torch, f"{name}_like", partial(draws.factory, fill, "empty_like"))
    for name in ("randint", "randint_like", "randperm", "normal", "bernoulli", "multinomial"):
        draws.replace(torch, name, getattr(draws, name))
    for name in ("bernoulli", "multinomial"):
        draws.replace(Tensor, name, getattr(draws, name))
    draws.replace(F, "dropout", partial(draws.dropout, False))
    for name in ("dropout1d", "dropout2d", "dropout3d"):
        draws.replace(F, name, partial(draws.dropout, True))
    draws.replace(F, "scaled_dot_product_attention", draws.attention)


class Draws:
    """Draws random numbers that follow from the sample or the step, not from the rank."""

    def __init__(self, now: Now) -> None:
        self.now = now
        self.generator = torch.Generator()
        self.fills: dict[str, Any] = {name: getattr(Tensor, name) for name in IN_PLACE.split()}
        """The methods as they are before they are replaced."""

    def active(self) -> bool:
        """Return whether the caller of our caller trains."""
        now = self.now
        if not now.begun or now.fetching or now.recorder.worker:
            return False
        caller: Any = sys._getframe(2)
        while is_ours(caller.f_code.co_filename):
            caller = caller.f_back
        return _LOADING not in caller.f_code.co_filename

    def drawn(self, kind: str, shape: Shape, make: Callable[[Shape, int], Tensor]) -> Tensor:
        """Return random numbers of a shape; `make` draws a shape from a seed."""
        now = self.now
        name = now.name(kind)
        samples = self._samples(name, shape)
        dim, width = self._rows(name, shape, len(samples))
        if dim is not None:
            now.neutral("random numbers of the training: by sample")
            row = (*shape[:dim], width, *shape[dim + 1 :])
            full = self._full_row(name, row, dim)
            part = tuple(slice(length) for length in row)
            return torch.cat([make(full, key(name, *i))[part] for i in samples], dim)
        whole = now.kept.draws.get(name, [shape])[0]
        if now.size > 1 and len(whole) == len(shape):
            cut = [d for d, length in enumerate(shape) if length != whole[d]]
            if len(cut) == 1 and shape[cut[0]] == len(range(now.rank, whole[cut[0]], now.size)):
                now.neutral("random numbers of the training: each rank's part of a global draw")
                now.recorder.note("divided", step=now.most_steps)
                mine = torch.arange(now.rank, whole[cut[0]], now.size, device="cpu")
                return make(tuple(whole), key(name)).index_select(cut[0], mine)
        now.neutral("random numbers of the training: the same on all ranks")
        return make(shape, key(name))

    def _samples(self, name: str, shape: Shape) -> list[tuple[int | str, ...]]:
        """Return keys of the samples that a draw is for: of the last batch, or of several."""
        now = self.now
        last: list[tuple[int | str, ...]] = [(i,) for i in now.samples]
        recent: list[list[tuple[int | str, ...]]] = [
            [(n, i) for i in samples] for n, samples in sorted(now.recent.items())
        ]
        sources = [last, *recent, [key for keys in recent for key in keys]]
        known = now.kept.sources.get(name)
        if known is None:
            known = 0
            if len(recent) > 1 and len(last) not in shape[:2]:
                fits = (n for n, keys in enumerate(sources) if len(keys) in shape[:2])
                known = next(fits, 0)
            if now.kept.writes:
                now.kept.sources[name] = known
        return [*sources[known]] if known < len(sources) else [*last]

    def _full_row(self, name: str, row: Shape, dim: int) -> Shape:
        """Return the shape of a row in the original, if it is larger: padded to a longer sample."""
        whole, known, width = self.now.kept.draws.get(name, [None, None, 0])
        if whole is None or known != dim or len(whole) != len(row):
            return row
        full = (*whole[:dim], width, *whole[dim + 1 :])
        return full if all(a >= b for a, b in zip(full, row, strict=True)) else row

    def _rows(self, name: str, shape: Shape, size: int) -> tuple[int | None, int]:
        """Return the dimension that holds the samples of the batch, and the rows of each sample."""
        now = self.now
        dim = dimension(shape, size)
        width = shape[dim] // size if dim is not None else 0
        known = now.kept.draws.get(name)
        if known is None:
            if now.kept.writes:
                now.kept.draws[name] = [shape, dim, width]
            return dim, width
        whole, dim, width = known
        if dim is None or len(shape) != len(whole) or not size or shape[dim] % size:
            return None, 0
        own = shape[dim] // size
        return (dim, own) if own <= width else (None, 0)

    def filled(self, kind: str, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Fill a tensor with new numbers."""
        fill = self.fills[kind]

        def make(shape: Shape, seed: int) -> Tensor:
            new = torch.empty(shape, dtype=tensor.dtype, device="cpu")
            return fill(new, *args, **kwargs, generator=self.generator.manual_seed(seed))

        # Draw before gradients are switched off, since a draw's name tells whether they are on.
        drawn = self.drawn(kind, tuple(tensor.shape), make)
        with torch.no_grad():
            return tensor.copy_(drawn)

    def new(self, kind: str, shape: Shape, *args: Any, dtype: Any = None) -> Tensor:
        """Return a new tensor filled with new numbers."""
        return self.filled(kind, torch.empty(shape, dtype=dtype, device="cpu"), *args)

    def replace(self, owner: Any, name: str, make: Any) -> None:
        """Replace a function of torch, and tell torch's compiler about the new one."""
        original = getattr(owner, name)
        setattr(owner, name, self.instead(original, make))
        operator = _find_builtin(original) if owner is torch else None
        if operator:
            _register_builtin(getattr(owner, name), operator)

    def instead(self, original: Any, make: Any) -> Any:
        """Return a function that calls `make` in training, and the original elsewhere."""

        @wraps(original)
        def made(*args: Any, **kwargs: Any) -> Tensor:
            return make(original, *args, **kwargs) if self.active() else original(*args, **kwargs)

        return made

    # --- replacements for functions of torch, which are given the original first ---

    def in_place(
        self, kind: str, original: Any, tensor: Tensor, *args: Any, **kwargs: Any
    ) -> Tensor:
        """Fill a tensor, as `tensor.normal_()` does."""
        if tensor.device.type != "cpu":
            return original(tensor, *args, **kwargs)
        kwargs.pop("generator", None)
        return self.filled(kind, tensor, *args, **kwargs)

    def factory(self, kind: str, empty: str, original: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Make a tensor of a given shape, as `rand` does."""
        kwargs.pop("generator", None)
        return self.filled(kind, getattr(torch, empty)(*args, **kwargs))

    def randint(self, original: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Replace `randint(high, size)` and `randint(low, high, size)`."""
        kwargs.pop("generator", None)
        given = dict(kwargs)
        *ends, last = (*args, given.pop("size")) if "size" in given else args
        high = given.pop("high", ends[-1] if ends else None)
        low = given.pop("low", ends[0] if len(ends) + ("high" in kwargs) > 1 else 0)
        new = torch.empty(last, **{"dtype": torch.int64, **given})
        return self.filled("random_", new, low, high)

    def randint_like(self, original: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Replace `randint_like(tensor, high)`, with or without `low`."""
        high = kwargs.pop("high", args[-1] if args else None)
        low = kwargs.pop("low", args[0] if len(args) > 1 else 0)
        return self.filled("random_", torch.empty_like(tensor, **kwargs), low, high)

    def randperm(self, original: Any, n: int, *args: Any, **kwargs: Any) -> Tensor:
        """Draw one order on all ranks, unless the caller gives a generator."""
        if kwargs.get("generator") is not None:
            return original(n, *args, **kwargs)
        name = self.now.name("randperm")
        if self._mixes(name, n):
            return self._partners(name, n, kwargs.get("device"))
        kwargs["generator"] = self.generator.manual_seed(key(name))
        return original(n, *args, **kwargs)

    def _mixes(self, name: str, n: int) -> bool:
        """Return whether randperm mixes the samples of the batch, as in mixup."""
        now = self.now
        if now.kept.writes and n == len(now.samples):
            now.kept.draws[name] = [[n], 0, 1]
        whole = now.kept.draws.get(name)
        return (
            whole is not None
            and n > 1
            and whole[0][0] == n * now.size == len(now.samples) * now.size
        )

    def _partners(self, name: str, n: int, device: Any) -> Tensor:
        """Return an order that keeps every sample on its rank, for usual numbers of ranks."""
        now = self.now
        now.neutral("partners within a batch: from the part of it that one rank has")
        parts = math.gcd(n * now.size, RANKS)
        places = torch.arange(n, device="cpu") * now.size + now.rank % now.size
        found = torch.empty(n, dtype=torch.int64, device="cpu")
        for part in range(parts):
            mine = (places % parts == part).nonzero().flatten()
            seed = self.generator.manual_seed(key(name, part))
            found[mine] = mine[_randperm(len(mine), generator=seed)]
        return found.to(device) if device is not None else found

    def normal(
        self, original: Any, mean: Any, std: Any = 1.0, size: Any = None, **kwargs: Any
    ) -> Tensor:
        """Replace `normal(mean, std)`, of tensors or numbers."""
        if kwargs.get("out") is not None:
            more = {"size": size, **kwargs} if size is not None else kwargs
            return original(mean, std, **more)
        kwargs.pop("generator", None)
        if size is not None:
            return self.filled("normal_", torch.empty(size, **kwargs), mean, std)
        mean, std = torch.as_tensor(mean), torch.as_tensor(std)
        shape = tuple(torch.broadcast_shapes(mean.shape, std.shape))
        new = self.new("normal_", shape, dtype=mean.dtype)
        with torch.no_grad():
            return mean + std * new

    def bernoulli(self, original: Any, tensor: Tensor, p: Any = None, **_: Any) -> Tensor:
        """Draw zeros and ones, with one probability or those of a tensor."""
        chance = self.new("uniform_", tuple(tensor.shape), dtype=torch.float32)
        return (chance < (tensor if p is None else p)).to(tensor.dtype)

    def bernoulli_(self, original: Any, tensor: Tensor, p: Any = 0.5, **kwargs: Any) -> Tensor:
        """Draw zeros and ones in place."""
        if tensor.device.type != "cpu":
            return original(tensor, p, **kwargs)
        chance = self.new("uniform_", tuple(tensor.shape), dtype=torch.float32)
        with torch.no_grad():
            return tensor.copy_(chance < p)

    def multinomial(
        self, original: Any, weights: Tensor, num_samples: int, replacement: bool = False, **_: Any
    ) -> Tensor:
        """Draw places by their weights: the exponential clocks that run out first win."""
        if not replacement:
            clocks = self.new("exponential_", tuple(weights.shape), dtype=torch.float64)
            return (weights / clocks).topk(num_samples, -1).indices
        shape: Shape = (*weights.shape[:-1], num_samples)
        chance = self.new("uniform_", shape, dtype=torch.float64)
        ends = weights.detach().double().cumsum(-1)
        found = torch.searchsorted(ends, chance * ends[..., -1:], right=True)
        return found.clamp_(max=weights.shape[-1] - 1)

    def dropout(
        self,
        features: bool,
        original: Any,
        input: Tensor,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Tensor:
        """Drop single values, or whole features."""
        if not training or not 0 < p < 1:
            return original(input, p, training, inplace)
        shape = tuple(input.shape)
        if features:
            shape = (*shape[:2], *(1 for _ in shape[2:]))
        chance = self.new("uniform_", shape, dtype=torch.float32)
        factors = (chance >= p).to(input.dtype) / (1 - p)
        return input.mul_(factors) if inplace else input * factors

    def attention(
        self,
        original: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **options: Any,
    ) -> Tensor:
        """Compute the dropout of attention in a separate step."""
        if not dropout_p:
            return original(query, key, value, attn_mask, dropout_p, is_causal, **options)
        if options.get("enable_gqa"):
            key, value = (
                x.repeat_interleave(query.size(-3) // x.size(-3), -3) for x in (key, value)
            )
        scale = options.get("scale")
        factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
        scores = query @ key.transpose(-2, -1) * factor
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, float("-inf"))
        elif attn_mask is not None:
            scores = scores + attn_mask
        return F.dropout(scores.softmax(-1), dropout_p) @ value


def dimension(shape: Shape, size: int) -> int | None:
    """Return the dimension of a shape that holds the samples of a batch, if that is certain.

    >>> dimension((32, 10), 32), dimension((5, 32, 10), 32), dimension((64, 10), 32)
    (0, 1, 0)
    >>> dimension((32, 32), 32), dimension((10,), 32)
    (None, None)
    """
    exact = [d for d, length in enumerate(shape[:2]) if length == size]
    if exact:
        return exact[0] if len(exact) == 1 else None
    # Several rows for each sample, such as positions or heads.
    return 0 if size > 1 and shape and shape[0] and not shape[0] % size else None
