"""What the launcher's environment says about this process."""

from __future__ import annotations

import pytest

from lockstep.world import World, launched, restarts


def test_without_a_launcher_nothing_was_launched(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    assert launched() is None
    assert restarts() == 0


def test_under_torchrun_rank_size_and_local_rank_are_read(monkeypatch: pytest.MonkeyPatch):
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert launched() == (5, 8, 1)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert restarts() == 2


def test_the_first_replica_speaks():
    assert World().is_first
    assert not World(rank=1, size=2).is_first
