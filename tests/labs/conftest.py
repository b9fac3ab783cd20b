"""All labs are run headless once: what they measured, the pages show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


class Learner:
    """A home of its own, in which labs were run."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._done: dict[int, dict[str, Any]] = {}

    def lockstep(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lockstep", *arguments],
            env=os.environ | {"HOME": str(self.home), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    def has_run(self, number: int) -> dict[str, Any]:
        """What a headless run of a lab did; it is run when first asked for."""
        if number not in self._done:
            ended = self.lockstep("lab", str(number), "--run", "--json")
            assert ended.returncode == 0, ended.stderr
            self._done[number] = json.loads(ended.stdout)
        return self._done[number]


@pytest.fixture(scope="session")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Learner:
    return Learner(tmp_path_factory.mktemp("learner"))
