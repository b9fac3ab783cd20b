"""A guard against leaks, around every test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _nothing_leaks() -> Iterator[None]:
    """A test that leaves a child process or a changed environment behind fails."""
    before = dict(os.environ)
    yield
    ours = ("PYTEST_CURRENT_TEST", "PYTORCH_NVML_BASED_CUDA_CHECK", "CUBLAS_WORKSPACE_CONFIG")
    changed = {k for k in before.keys() | os.environ.keys() if before.get(k) != os.environ.get(k)}
    assert not changed - set(ours) - {k for k in changed if k.startswith("TORCHINDUCTOR")}
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
