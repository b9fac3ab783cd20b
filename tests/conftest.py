"""A guard against leaks, around every test; the ways that gradients take; the examples drawn."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

from lockstep.processes.forked import server_ids

# A million objects are made while tests are collected, and all of them stay: looking for garbage
# among them takes half of the time.
gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage again, but not among what was imported and collected."""
    gc.freeze()
    gc.enable()


# Some virtual machines announce AMX and do not have it: bfloat16 then ends in SIGILL, also in
# plain torch. What oneDNN may use is decided before torch is first used.
CPU = Path("/proc/cpuinfo")
LINEAR = "import torch; torch.nn.Linear(32, 64).bfloat16()(torch.ones(8, 32).bfloat16())"
if CPU.exists() and "amx_bf16" in CPU.read_text() and "ONEDNN_MAX_CPU_ISA" not in os.environ:
    ended = subprocess.run([sys.executable, "-c", LINEAR], capture_output=True, check=False)
    if ended.returncode < 0:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"

# The same examples in every run: a suite that passed passes again. `make explore` draws new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1000, deadline=None)
settings.load_profile("repeatable")

# Scripts to be looked at, not to be run.
collect_ignore = ["cases"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Send tests that share a fixture of their module or session to one worker.

    All other tests are spread one by one. Tests that share runs in another way carry the mark
    `xdist_group`.
    """
    for item in items:
        fixtures = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009
        for found in fixtures.values():
            if found[-1].scope in ("module", "session") and found[-1].baseid.startswith("tests"):
                item.add_marker(pytest.mark.xdist_group(found[-1].baseid))
                break


def children() -> set[int]:
    """The processes that this one has started, dead ones that nobody has waited for too."""
    found: set[int] = set()
    for one in Path("/proc/self/task").glob("*/children"):
        # A thread may end while its list is read.
        with suppress(FileNotFoundError, ProcessLookupError):
            found |= {int(pid) for pid in one.read_text().split()}
    return found


@pytest.fixture(autouse=True)
def _nothing_leaks() -> Iterator[None]:
    """A test that leaves a child process or a changed environment behind fails."""
    before = dict(os.environ)
    yield
    ours = ("PYTEST_CURRENT_TEST", "PYTORCH_NVML_BASED_CUDA_CHECK", "CUBLAS_WORKSPACE_CONFIG")
    changed = {k for k in before.keys() | os.environ.keys() if before.get(k) != os.environ.get(k)}
    assert not changed - set(ours) - {k for k in changed if k.startswith("TORCHINDUCTOR")}
    assert not children() - server_ids()


@pytest.fixture(
    params=[(1, 2), pytest.param((1, 4), marks=pytest.mark.slow)], ids=["1 and 2", "1 and 4"]
)
def sizes(request: pytest.FixtureRequest) -> tuple[int, ...]:
    """Numbers of replicas that must end in the same bits."""
    return tuple(request.param)


@pytest.fixture(
    params=[(1, 2), pytest.param((1, 2, 4), marks=pytest.mark.slow)], ids=["1 2", "1 2 4"]
)
def numbers(request: pytest.FixtureRequest) -> tuple[int, ...]:
    """Numbers of replicas that must end in the same bits; `make test-all` adds 4."""
    return tuple(request.param)


@pytest.fixture
def gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas exchange as if they were on several machines."""
    for place in ("exchange.connect", "program.exchange"):
        monkeypatch.setattr(
            f"lockstep.engine.{place}.set_up", lambda group, timeout: "this is a test"
        )


@pytest.fixture(params=["shared memory", "gloo"])
def way(request: pytest.FixtureRequest) -> str:
    """Each way that the gradients of CPU replicas can take."""
    if request.param == "gloo":
        request.getfixturevalue("gloo")
    return str(request.param)
