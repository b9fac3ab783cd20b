"""Run programs with a `lockstep.Loop` on real replicas, for all tests."""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.cluster.program import Program, launch_program
from lockstep.console import Console
from lockstep.engine.program.record import ProgramRecord

HEAD = """
import random
import numpy
import torch
from torch import nn
from torch.nn import functional as F
import lockstep

GENERATOR = torch.Generator().manual_seed(1)
X, Y = torch.randn(70, 6, generator=GENERATOR), torch.randint(0, 3, (70,), generator=GENERATOR)
DATA = list(zip(X, Y))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 3)
        self.norm, self.dropout = nn.BatchNorm1d(16), nn.Dropout(0.2)
    def forward(self, x):
        return self.b(self.dropout(torch.relu(self.norm(self.a(x)))))
"""
"""What the small programs of the tests begin with."""

PLAIN = """
with lockstep.Loop(global_batch=16, exact=True) as loop:
    model = loop.model(Net())
    optimizer = loop.optimizer(torch.optim.AdamW(model.parameters(), lr=1e-2))
    batches = loop.batches(DATA)
    def loss(batch):
        x, y = batch
        return F.cross_entropy(model(x), y, reduction="sum"), len(y)
    for epoch in loop.epochs(2):
        for batch in batches:
            loop.step(batch, loss, optimizer)
"""


def written(folder: Path, body: str, head: str = HEAD) -> Path:
    """Write a program and return its path."""
    path = folder / "program.py"
    path.write_text(head + textwrap.dedent(body))
    return path


def run(
    path: Path,
    out: Path,
    replicas: int = 1,
    *,
    resume: bool = False,
    console: Console | None = None,
    **flags: Any,
) -> dict[str, Any]:
    """Run a program on replicas of this machine; return its summary."""
    program = Program(path=path, out=out, resume=resume, flags=flags)
    return launch_program(
        program, replicas=replicas, device="cpu", console=console or Console(quiet=True)
    )


def killed_after(monkeypatch: pytest.MonkeyPatch, step: int, rank: int = 0) -> Callable[[], None]:
    """Let replica `rank` die after a step, before it can save anything; return the way back."""
    plain = ProgramRecord.after_body

    def after_body(self: ProgramRecord, **options: Any) -> None:
        if self.iterations + 1 == step and self.group.world.rank == rank:
            # The last checkpoint is on disk by then.
            self.checkpoints.finish()
            os.kill(os.getpid(), signal.SIGKILL)
        plain(self, **options)

    monkeypatch.setattr(ProgramRecord, "after_body", after_body)
    return lambda: monkeypatch.setattr(ProgramRecord, "after_body", plain)


class Heard(Console):
    """A console that keeps warnings."""

    def __init__(self, path: Path, *, says: bool = False) -> None:
        """`says` keeps what is said, too, not only warnings."""
        super().__init__()
        self.path, self.says = path, says

    def warn(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text + "\n")

    def say(self, text: str) -> None:
        """Keep it if that was asked for."""
        if self.says:
            self.warn(text)

    @property
    def text(self) -> str:
        """Return all of it."""
        return self.path.read_text() if self.path.exists() else ""
