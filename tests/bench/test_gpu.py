"""The sides on a GPU, the captured step among them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep.bench.entries import parse_entries
from lockstep.bench.measure import Settings, measure
from lockstep.world import gpu_count
from tiny import TINY


@pytest.mark.gpu
@pytest.mark.skipif(gpu_count() == 0, reason="needs a GPU")
# What a compiler says about its own work.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("capture", [True, False])
def test_all_sides_are_measured_on_a_gpu(capture: bool):
    entries = parse_entries("lockstep,lockstep-exact,handwritten,workshop,tuned", 1)
    settings = Settings(device="cuda", rounds=2, steps=3, warmup=0.0)
    sides = measure(replace(TINY, capture=capture), entries, settings)["sides"]
    for side in sides.values():
        assert side["error"] is None, side["trace"]
        assert side["peak_memory_bytes"] > 0
