"""The linear neuron against plain references, and the quiz on other machines' numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lockstep.labs.lab1_descent import batch_sizes, loss_surface, neuron
from lockstep.labs.lab1_descent.batch_sizes import BatchSizes
from lockstep.labs.lab1_descent.quiz import questions, stable_rate


@pytest.mark.parametrize("batch", [1, 7, 32, 100])
def test_the_descent_is_that_of_autograd(batch: int) -> None:
    x, y = (torch.from_numpy(v) for v in neuron.samples(3.0))
    weights = torch.tensor(neuron.START, dtype=torch.float64, requires_grad=True)
    draw = np.random.default_rng(0)
    seen = []
    for _ in range(3):
        order = draw.permutation(100) if batch < 100 else np.arange(100)
        for part in torch.from_numpy(order).split(batch):
            loss = ((weights[0] * x[part] + weights[1] - y[part]) ** 2).mean()
            seen.append(loss.item())
            (slope,) = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                weights -= 0.01 * slope
    way = neuron.descend(0.01, batch, 3.0, 3)
    # Some hundred float64 steps that shrink errors; sums in another order move the last bits.
    np.testing.assert_allclose([way.w[-1], way.b[-1]], weights.detach().numpy(), rtol=1e-10)
    np.testing.assert_allclose(way.seen, seen, rtol=1e-8)
    assert way.per_epoch == len(way.seen) / 3


def test_the_surface_is_the_mean_squared_error() -> None:
    x, y = neuron.samples(2.0)
    w, b, loss = loss_surface.grid(neuron.whole(2.0))
    assert loss.shape == (200, 200)
    direct = np.mean((w[17] * x + b[101] - y) ** 2)
    assert loss[101, 17] == pytest.approx(direct, rel=1e-9)


def test_gradient_descent_comes_to_the_fitted_line() -> None:
    way = neuron.descend(0.05, 100, 3.0, 1000)
    assert (way.w[-1], way.b[-1]) == pytest.approx(neuron.fitted(3.0), abs=1e-3)
    assert neuron.converged(way.by_epoch) is not None


def test_it_diverges_just_beyond_the_limit_and_not_before() -> None:
    assert neuron.descend(1.02 * stable_rate(), 100, 3.0, 1000).diverged
    assert not neuron.descend(0.98 * stable_rate(), 100, 3.0, 1000).diverged


def test_convergence_is_relative_and_between_epochs() -> None:
    assert neuron.converged(np.array([1000.0, 998.0, 997.5, 997.4])) == 2
    assert neuron.converged(np.array([1.0, 0.5, 0.25])) is None


@pytest.mark.parametrize(
    ("draw", "more"),
    [
        (loss_surface.flat, {"own": True}),
        (loss_surface.solid, {}),
        *((loss_surface.losses, {"against": axis}) for axis in loss_surface.AXES),
    ],
)
@pytest.mark.parametrize("rate", [0.001, 0.2])
@pytest.mark.parametrize("batch", [1, 100])
def test_every_figure_holds_only_numbers(draw, more, rate: float, batch: int) -> None:
    figure = draw(rate=rate, batch=batch, noise=3.0, epochs=20, **more)
    for trace in figure["data"]:
        for name in ("x", "y"):
            assert np.isfinite(np.array(trace.get(name, [0.0]), dtype=float)).all()


def test_the_axes_count_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_surface, "step_seconds", lambda batch: 2e-6 + 1e-8 * batch)
    ends = {
        axis: [
            trace["x"][-1]
            for trace in loss_surface.losses(0.01, 7, 3.0, 20, axis)["data"]
            if trace["x"]
        ][:3]
        for axis in loss_surface.AXES
    }
    assert ends["epochs"] == [20, 20, 20]
    assert ends["steps"] == [20, 20 * 15, 20 * 100]  # 14 batches of seven and one of two
    assert ends["milliseconds"] == pytest.approx([20 * 0.003, 300 * 0.00207, 2000 * 0.00201])


def test_a_step_is_timed() -> None:
    assert 0 < neuron.step_seconds(1) < 1


def test_batch_sizes_are_measured_and_drawn() -> None:
    said = []
    found = batch_sizes.measure(lambda share, what: said.append(share), sizes=(128, 700), epochs=3)
    assert [len(one) for one in found.curves] == [3, 3]
    assert all(len(curve) == 3 for runs in found.curves for curve in runs)
    assert said == sorted(said)
    assert batch_sizes.throughput(found)["data"][0]["x"] == [128, 700]
    assert "700 (3 of 3)" in batch_sizes.time_to(found, 0.99)["note"]


@st.composite
def machines(draw) -> BatchSizes:
    """What some machine may have measured."""
    sizes = list(batch_sizes.SIZES)
    speed = st.floats(100.0, 1e6)
    curves = [
        [
            [[epoch * draw(st.floats(0.01, 1.0)), draw(st.floats(0.5, 1.0))] for epoch in (1, 2, 3)]
            for _ in range(3)
        ]
        for _ in sizes
    ]
    return BatchSizes(
        device="cpu",
        sizes=sizes,
        throughput=[[draw(speed) for _ in range(3)] for _ in sizes],
        curves=curves,
    )


@given(machines())
def test_the_quiz_has_five_questions_whatever_was_measured(found: BatchSizes) -> None:
    asked = questions(found)
    assert len(asked) == 5
    assert all(2 < len(question.choices) < 5 for question in asked)
