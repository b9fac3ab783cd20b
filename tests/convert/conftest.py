"""Give the scripts that these tests run the real torchvision."""

from __future__ import annotations

import os

import pytest

from torchvision_folder import FOLDER


@pytest.fixture(autouse=True)
def _torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(FOLDER), prepend=os.pathsep)
