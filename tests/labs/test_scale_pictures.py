"""Small measurements of lab 3, and what its pictures make of them."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from lockstep.labs.lab3_scale import (
    batch_norm,
    momentum,
    noise_scale,
    optimizers,
    rate_grid,
    warmup,
)
from lockstep.scaling.batch.critical import Tradeoff


def silent(share: float, what: str) -> None:
    assert 0.0 <= share <= 1.0
    assert what


def kept(found: Any) -> Any:
    """As a later visit sees it."""
    return type(found)(**json.loads(json.dumps(asdict(found), allow_nan=False)))


@pytest.fixture(scope="module")
def small() -> SimpleNamespace:
    grid = kept(rate_grid.measure(silent, batches=(64, 128, 512), seeds=1))
    return SimpleNamespace(
        grid=grid,
        momenta=kept(momentum.measure(silent, seeds=1, epochs=1)),
        warmups=kept(warmup.measure(silent, epochs=1, seeds=1)),
        optimizers=kept(optimizers.measure(silent, epochs=1, seeds=1)),
        noises=kept(noise_scale.measure(silent, grid, seeds=1)),
        norms=kept(batch_norm.measure(silent, epochs=1, seeds=1)),
    )


def every(draw: Any, **values: Any) -> list[dict[str, Any]]:
    """The figure at every position of its sliders."""
    rows = product(*values.values())
    figures = [draw(**dict(zip(values, row, strict=True))) for row in rows]
    for figure in figures:
        # No NaN, which is no JSON, and nothing that a page would be slow with.
        assert len(json.dumps(figure, allow_nan=False)) < 60_000
        layout = figure["layout"]
        assert "font" not in layout
        assert "width" not in layout
        assert layout["xaxis"]["title"]["text"]
        assert layout["yaxis"]["title"]["text"]
        for trace in figure["data"]:
            assert len(trace["x"]) == len(trace["y"]) or trace["type"] == "heatmap"
    return figures


def test_every_position_of_every_slider_has_a_picture(small: SimpleNamespace):
    grid, momenta, layers = small.grid, small.momenta, small.optimizers
    every(
        lambda **at: rate_grid.figure(grid, **at),
        budget=rate_grid.BUDGETS,
        momentum=grid.momenta,
        batch=grid.batches[:1],
        rate=grid.rates[:1],
    )
    every(lambda **at: momentum.figure(momenta, **at), momentum=momenta.momenta, rate=momenta.rates)
    every(lambda **at: momentum.ends(momenta, **at), momentum=momenta.momenta, along=[False, True])
    every(
        lambda **at: warmup.figure(small.warmups, **at),
        replicas=small.warmups.replicas,
        rate=small.warmups.rates,
        warmup=small.warmups.warmups,
        per_node=[1, 2],
    )
    every(lambda **at: warmup.ends(small.warmups, **at), replicas=[2, 4, 8], rate=[1.0])
    every(lambda **at: optimizers.figure(layers, **at), rate=layers.rates, own=[False, True])
    every(lambda **at: optimizers.ends(layers, **at), rate=layers.rates)
    every(
        lambda **at: optimizers.layers(layers, **at),
        step=range(1, layers.steps[-1] + 1),
        what=["step", "ratio"],
    )
    every(lambda **at: noise_scale.along(small.noises, **at))
    every(lambda **at: batch_norm.figure(small.norms, **at), epochs=[1], rate=small.norms.rates)


def test_the_grid_learns_something_and_loses_something(small: SimpleNamespace):
    cells = rate_grid.accuracy_at(small.grid, ("epochs", 5), 0.9)
    assert cells.shape == (3, len(small.grid.rates), 1)
    assert cells.max() > 0.85
    assert cells[:, -1].max() < rate_grid.GUESS
    figure = rate_grid.figure(small.grid, budget=("epochs", 5), momentum=0.9, batch=64, rate=0.04)
    texts = figure["data"][0]["text"]
    assert texts[-1] == [rate_grid.LOST] * 3
    assert rate_grid.LOST not in texts[2]


def test_rules_go_through_the_base_with_their_slopes(small: SimpleNamespace):
    figure = rate_grid.figure(small.grid, budget=("steps", 50), momentum=0.0, batch=128, rate=0.08)
    lines = {trace.get("name"): trace for trace in figure["data"]}
    for name, slope in (("linear rule", 1.0), ("square root", 0.5)):
        y = lines[name]["y"]
        assert y[1] == pytest.approx(math.log2(0.08), abs=1e-3)
        # From batch 128 to 512 there are two doublings.
        assert y[2] - y[1] == pytest.approx(2 * slope, abs=1e-3)


def made(steps: dict[int, list[int]], losses: dict[int, list[float | None]]) -> rate_grid.Explored:
    """A grid with one rate, no momentum and one seed."""
    shaped = [[[[[value]]] for value in losses[b]] for b in steps]
    return rate_grid.Explored(
        samples=1000,
        batches=list(steps),
        rates=[0.1],
        momenta=[0.0],
        seeds=1,
        steps=list(steps.values()),
        accuracy=shaped,
        loss=shaped,
    )


def test_steps_to_a_target_are_interpolated_and_may_never_come():
    steps = {8: [1, 10, 20], 16: [1, 10, 20], 32: [1, 10, 20], 64: [1, 10, 20]}
    losses: dict[int, list[float | None]] = {
        8: [2.0, 1.0, 0.25],
        16: [0.3, 0.2, 0.1],
        32: [2.0, 1.0, 0.9],
        64: [2.0, None, 0.1],
    }
    found = noise_scale.quickest(made(steps, losses), 0.5)
    # Half-way from 1 to 1/4 in logarithms.
    assert found == [(pytest.approx(15.0), 0.1), (1.0, 0.1), (None, None), (None, None)]
    assert noise_scale.swept(made(steps, losses), 0.5) is None


def test_the_fit_finds_the_tradeoff_that_made_the_grid():
    true = Tradeoff(least_steps=20.0, critical_batch=30.0)
    steps = {b: list(range(1, 200)) for b in (8, 16, 32, 64, 128, 256, 512)}
    # The loss is halved when the target of a half is due.
    losses: dict[int, list[float | None]] = {
        b: [0.5 ** (s / true.steps(b)) for s in own] for b, own in steps.items()
    }
    fit = noise_scale.swept(made(steps, losses), 0.5)
    assert fit is not None
    assert fit[0].least_steps == pytest.approx(20.0, rel=1e-3)
    assert fit[0].critical_batch == pytest.approx(30.0, rel=1e-3)


def test_a_target_that_no_run_reached_is_named_and_not_drawn(small: SimpleNamespace):
    steps = {b: [1, 2] for b in (8, 16, 32)}
    losses: dict[int, list[float | None]] = {b: [2.0, 2.0] for b in steps}
    figure = noise_scale.figure(made(steps, losses), small.noises, target=0.4, batch=64)
    assert figure["data"] == []
    assert "Too few runs reached" in figure["note"]


def test_the_noise_of_a_training_predicts_a_critical_batch(small: SimpleNamespace):
    noises = small.noises
    assert noises.batch == 64
    assert noises.rate in small.grid.rates
    for source in ("shards", "steps"):
        (value,) = noises.critical(noise_scale.TARGETS[-1], source)
        assert 1 < value < 10_000
    assert len(noises.shards[0]) == len(noises.loss[0]) - 1
    assert noises.loss[0][-1] <= noise_scale.HARDEST


def test_a_warmup_starts_at_the_rate_of_one_replica():
    factor = warmup.rise(2, 8, 16)
    assert factor(0.0) == 1 / 16
    assert factor(0.125) == pytest.approx((1 / 16 + 1) / 2)
    assert factor(0.25) == 1.0
    assert warmup.rise(0, 8, 16)(0.0) == 1.0


def test_the_shown_rate_is_where_a_warmup_changed_most():
    def ends(*values: float) -> Any:
        return [[[[value] for value in values], [[0.9], [0.9]]]]

    found = warmup.found(
        warmup.Warmups(
            each=16,
            replicas=[2, 4],
            rates=[1.0, 2.0],
            warmups=[0, 3],
            epochs=[[8.0], [8.0]],
            accuracy=[ends(0.8, 0.9), ends(0.1, 0.95)],
        )
    )
    assert found == (4, 1.0, 3, 0.1, 0.95)


def test_every_layer_moves_by_the_same_share_with_lamb(small: SimpleNamespace):
    layers = small.optimizers
    # Its step is the rate times the length of the layer, whatever the gradient.
    rate = layers.rates[layers.best("LAMB")]
    for shares in layers.moved[layers.names.index("LAMB")]:
        assert shares == pytest.approx([rate] * 4, rel=1e-3)
    for shares in layers.moved[layers.names.index("SGD")][1:]:
        assert max(shares) > 1.2 * min(shares)


def test_larc_is_sgd_where_the_rate_is_small(small: SimpleNamespace):
    layers = small.optimizers
    sgd, larc = (layers.curves[layers.names.index(name)] for name in ("SGD", "LARC"))
    assert numpy.array_equal(sgd[:, 0], larc[:, 0])
    assert not numpy.array_equal(sgd[:, -1], larc[:, -1])


def test_fixed_shards_are_drawn_where_a_replica_can_have_one(small: SimpleNamespace):
    figure = batch_norm.figure(small.norms, epochs=1, rate=small.norms.rates[0])
    own, shards, synced = figure["data"]
    assert len(own["x"]) == len(synced["x"]) == len(batch_norm.LOCALS)
    assert len(shards["x"]) == sum(local >= batch_norm.SHARD for local in batch_norm.LOCALS)
    assert len(set(shards["y"])) == len(set(synced["y"])) == 1
    assert own["y"][-1] == synced["y"][-1]
    assert own["y"][0] != synced["y"][0]
