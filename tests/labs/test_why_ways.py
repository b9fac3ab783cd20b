"""Lab 0: the same model both ways: bytes, memory, the same weights; and where one sends less."""

from __future__ import annotations

import json
from inspect import unwrap
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lockstep.labs.lab0_why import bytes_sent, parallelism
from lockstep.labs.lab0_why.bytes_sent import (
    PARTS,
    activation_bytes,
    even_batch,
    gradient_bytes,
    idle,
    parameters,
    schedule,
)
from lockstep.labs.lab0_why.memory import ActivationBytes, state_bytes
from lockstep.labs.lab0_why.parallelism import DATA, MODEL, ONE, Ways, perceptron

WIDTH, SMALL, LARGE = 16, 8, 64


@pytest.fixture(scope="module")
def measured() -> Ways:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallelism, "WIDTHS", (WIDTH,))
        patch.setattr(parallelism, "BATCHES", (SMALL, LARGE))
        return unwrap(parallelism.measure)(lambda share, what: None)


@pytest.mark.parametrize("batch", [SMALL, LARGE])
def test_bytes_that_were_sent_are_those_of_the_formulas(measured: Ways, batch: int):
    assert measured.row(WIDTH, batch, ONE)["sent"] == [0]
    assert measured.row(WIDTH, batch, DATA)["sent"] == [gradient_bytes(WIDTH)] * 2
    model = measured.row(WIDTH, batch, MODEL)
    assert model["sent"] == [activation_bytes(WIDTH, batch)] * 2
    assert model["messages"] == [measured.micro_batches] * 2


def test_both_ways_reach_the_weights_of_one_process(measured: Ways):
    for row in measured.rows:
        # A few steps in float32, whose sums are made in another order: some times 1.2e-7.
        assert row["differs"] < 3e-6
    assert measured.row(WIDTH, SMALL, ONE)["differs"] == 0.0


@pytest.mark.parametrize("batch", [SMALL, LARGE])
def test_memory_is_shared_out_by_layers_or_by_samples(measured: Ways, batch: int):
    one, data, model = (measured.row(WIDTH, batch, way) for way in (ONE, DATA, MODEL))
    for part in ("parameters", "gradients", "optimizer"):
        # SGD with momentum keeps one number for each parameter.
        assert one[part] == [4 * parameters(WIDTH)]
        assert data[part] == one[part] * 2
        assert sum(model[part]) == one[part][0]
        assert max(model[part]) < one[part][0]
    # Half of the samples; a loss is one number, however many there are.
    assert data["activations"] == [pytest.approx(one["activations"][0] / 2, abs=8)] * 2
    assert sum(model["activations"]) < one["activations"][0]


def test_activations_are_what_the_layers_keep(measured: Ways):
    # The pixels, the output of each ReLU, the log-softmax in floats; a target is 8 bytes; and the
    # total weight of the samples, one float.
    expected = LARGE * (
        4 * (parallelism.PIXELS + parallelism.HIDDEN * WIDTH + parallelism.CLASSES) + 8
    )
    assert measured.row(WIDTH, LARGE, ONE)["activations"][0] == pytest.approx(expected, abs=8)


def test_measurements_are_kept_as_json(measured: Ways):
    again = Ways(**json.loads(json.dumps(vars(measured))))
    assert again == measured
    for row in measured.rows:
        assert row["seconds"] > 0


def test_memory_that_is_shared_counts_once_and_is_given_back():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    kept = ActivationBytes(net.parameters())
    with kept.watching():
        outputs = net(torch.randn(16, 4))
        assert kept.now == 16 * (4 + 8) * 4
        outputs.sum().backward()
    del outputs
    assert kept.now == 0
    assert kept.peak == 16 * (4 + 8) * 4


def test_states_are_counted_tensor_by_tensor():
    net = nn.Linear(4, 8)
    optimizer = torch.optim.Adam(net.parameters())
    assert state_bytes(net, optimizer) == {"parameters": 160, "gradients": 0, "optimizer": 0}
    net(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    assert state_bytes(net, optimizer) == {"parameters": 160, "gradients": 160, "optimizer": 320}


@pytest.mark.parametrize("width", [1, 32, 100])
def test_parameters_are_counted_as_the_model_has_them(width: int):
    assert parameters(width) == sum(p.numel() for p in perceptron(width).parameters())


@given(st.sampled_from(bytes_sent.WIDTHS), st.sampled_from(bytes_sent.BATCHES))
def test_the_even_batch_tells_who_sends_less(width: int, batch: int):
    assert (activation_bytes(width, batch) > gradient_bytes(width)) == (batch > even_batch(width))


@given(st.integers(1, 6), st.integers(1, 12))
def test_a_schedule_is_idle_as_long_as_the_formula_says(stages: int, micro_batches: int):
    blocks = schedule(stages, micro_batches)
    assert len(blocks) == 2 * stages * micro_batches
    assert idle(blocks) == pytest.approx((stages - 1) / (micro_batches + stages - 1))
    for stage in range(stages):
        own = sorted((b.start, b.end) for b in blocks if b.stage == stage)
        assert all(a[1] <= b[0] + 1e-12 for a, b in pairwise(own))


def test_pictures_hold_what_was_measured_and_change(measured: Ways):
    figures = [
        bytes_sent.figure(measured, width, batch, micro)
        for width, batch, micro in ((WIDTH, 64, 4), (512, 64, 4), (WIDTH, 4096, 4), (WIDTH, 64, 1))
    ]
    for figure in figures:
        json.dumps(figure, allow_nan=False)
    assert len({figure["note"] for figure in figures}) == 4
    dots = [trace for trace in figures[0]["data"] if trace["name"] == "measured"]
    assert [trace["x"] for trace in dots] == [[SMALL, LARGE]] * 2
    lines = {trace["name"]: trace for trace in figures[0]["data"]}
    # The points lie on the lines.
    assert dots[0]["y"] == lines["gradients"]["y"]
    assert dots[1]["y"][1] == lines["activations"]["y"][bytes_sent.BATCHES.index(LARGE)]


def test_the_table_has_a_column_for_each_way(measured: Ways):
    rows = bytes_sent.rows(measured, WIDTH, LARGE)
    assert {len(row) for row in rows} == {len(bytes_sent.COLUMNS)}
    assert [row[0] for row in rows if row[0] in PARTS] == list(PARTS)
    assert rows[0][1] == "-"
