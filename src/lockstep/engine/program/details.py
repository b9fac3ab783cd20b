"""Note one step in detail: hashes of samples, weights, settings and gradients, for an audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from lockstep.data.nested import digest
from lockstep.engine.checks.fingerprint import fingerprint
from lockstep.engine.program.batches import Piece
from lockstep.engine.program.state import ProgramState
from lockstep.engine.program.step import Stepper
from lockstep.engine.program.tree import Gradients


class Details:
    """Writes details.json for the step whose number an audit asks for; on one replica only."""

    def __init__(self, path: Path, step: int, state: ProgramState) -> None:
        self.path, self.step, self.state = path, step, state
        self.found: list[dict[str, Any]] = []
        """One entry for each optimizer that takes a step."""
        self.looking = False

    def before(self, step: int, call: int, name: str, stepper: Stepper) -> None:
        """Note the weights and the optimizer's settings before a step."""
        self.looking = step == self.step
        if not self.looking:
            return
        groups = [
            {n: repr(v) for n, v in group.items() if n != "params"}
            for group in stepper.optimizer.param_groups
        ]
        weights = {name: int(fingerprint(p)) for p, name in self.state.names().items()}
        entry = {"call": call, "optimizer": name, "groups": groups, "weights": weights}
        self.found.append(entry | {"shards": {}})

    def piece(self, piece: Piece, gradients: Gradients, parameters: list[Tensor]) -> None:
        """Note the samples and the gradients of one shard."""
        if not self.looking:
            return
        names = self.state.names()
        self.found[-1]["shards"][str(piece.shards.start)] = {
            "samples": digest(piece.content),
            "gradients": {
                names[p]: int(fingerprint(g))
                for p, g in zip(parameters, gradients, strict=True)
                if g is not None
            },
        }
        self.path.write_text(json.dumps(self.found))
