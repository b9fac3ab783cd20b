"""Note one step in detail: hashes of samples, weights, settings and gradients, for an audit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lockstep.data.nested import digest
from lockstep.engine.checks.fingerprint import fingerprint


class Details:
    """Writes details.json for the step whose number an audit asks for; on one replica only."""

    def __init__(self, path: Path, step: int, names: Callable[[], dict[Tensor, str]]) -> None:
        """`names` returns the name of every parameter."""
        self.path, self.step, self.names = path, step, names
        self.found: list[dict[str, Any]] = []
        """One entry for each optimizer that takes a step."""
        self.looking = False

    def before(self, step: int, call: int, name: str, optimizer: torch.optim.Optimizer) -> None:
        """Note the weights and the optimizer's settings before a step."""
        self.looking = step == self.step
        if not self.looking:
            return
        groups = [
            {n: _shown(v) for n, v in group.items() if n != "params"}
            for group in optimizer.param_groups
        ]
        weights = {name: int(fingerprint(p)) for p, name in self.names().items()}
        entry = {"call": call, "optimizer": name, "groups": groups, "weights": weights}
        self.found.append(entry | {"shards": {}})

    def piece(
        self,
        shard: int,
        content: Any,
        gradients: Sequence[Tensor | None],
        parameters: Sequence[Tensor],
    ) -> None:
        """Note the samples of one shard, and the gradients up to it or of it alone."""
        if not self.looking:
            return
        names = self.names()
        self.found[-1]["shards"][str(shard)] = {
            "samples": digest(content),
            "gradients": {
                names[p]: int(fingerprint(g))
                for p, g in zip(parameters, gradients, strict=True)
                if g is not None
            },
        }
        self.path.write_text(json.dumps(self.found))


def _shown(value: Any) -> str:
    """Return a setting as text; a rate on a device reads as a number."""
    return repr(value.item() if isinstance(value, Tensor) and value.numel() == 1 else value)
