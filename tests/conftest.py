"""A guard against leaks, around every test; the ways that gradients take; the examples drawn."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# The same examples in every run: a suite that passed passes again. `make explore` draws new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1000, deadline=None)
settings.load_profile("repeatable")

# Scripts to be looked at, not to be run.
collect_ignore = ["cases"]


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


@pytest.fixture
def gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas exchange as if they were on several machines."""
    monkeypatch.setattr("lockstep.engine.exchange.set_up", lambda group, timeout: "this is a test")


@pytest.fixture(params=["shared memory", "gloo"])
def way(request: pytest.FixtureRequest) -> str:
    """Each way that the gradients of CPU replicas can take."""
    if request.param == "gloo":
        request.getfixturevalue("gloo")
    return str(request.param)
