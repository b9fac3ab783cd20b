"""Learning curves: the fit finds what made the points, and its interval holds what comes later."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.errors import UsageError
from lockstep.predict.learning_curve import PowerLaw, fit

SIZES = [100.0 * 2**n for n in range(8)]
# Wider than the exponents that Hestness 2017 saw on four kinds of data, -0.07 to -0.35.
laws = st.builds(PowerLaw, a=st.floats(0.5, 10), b=st.floats(-1.0, -0.07), c=st.floats(0, 0.3))


def curve(law: PowerLaw, sizes: list[float]) -> list[float]:
    return [law.error(m) for m in sizes]


def noisy(law: PowerLaw, sizes: list[float], noise: float, seed: int) -> list[float]:
    scatter = numpy.random.default_rng(seed).standard_normal(len(sizes))
    return [e * math.exp(noise * s) for e, s in zip(curve(law, sizes), scatter, strict=True)]


@given(laws)
def test_a_fit_finds_the_law_that_made_the_points(law: PowerLaw):
    found = fit(SIZES, curve(law, SIZES))
    # Between the points to the digits of the arithmetic; further out an error in b grows with them.
    assert curve(found.law, SIZES) == pytest.approx(curve(law, SIZES), rel=1e-6)
    assert found.law.b == pytest.approx(law.b, rel=1e-2)
    assert found.law.c == pytest.approx(law.c, abs=1e-2)


def test_a_fit_stands_noise():
    law = PowerLaw(a=2.0, b=-0.35, c=0.05)
    found = [fit(SIZES, noisy(law, SIZES, 0.02, seed)).law for seed in range(40)]
    # Eight points, each off by 2%, over a factor of 128: the fits scatter, their middle does not.
    assert numpy.median([f.b for f in found]) == pytest.approx(law.b, rel=0.1)
    assert numpy.median([f.c for f in found]) == pytest.approx(law.c, abs=0.02)


@pytest.mark.parametrize("floor", [0.0, 0.05, 0.2])
def test_nine_of_ten_intervals_hold_what_is_measured_later(floor: float):
    law, later = PowerLaw(a=2.0, b=-0.35, c=floor), 8 * SIZES[4]
    fits = [fit(SIZES[:5], noisy(law, SIZES[:5], 0.03, seed)) for seed in range(200)]
    errors, needs = ([f.error(later) for f in fits], [f.needed(law.error(later)) for f in fits])
    # 200 draws of nine in ten scatter by 2%.
    for ranges, truth in ((errors, law.error(later)), (needs, later)):
        assert sum(r.low <= truth <= r.high for r in ranges) >= 0.84 * 200
    assert all(r.low <= r.best <= r.high for r in (*errors, *needs))


def test_the_first_points_promise_too_much_and_the_interval_says_so():
    """The test error of a perceptron on Fashion-MNIST, eight seeds: measured once, copied here."""
    sizes = [50, 100, 200, 400, 800, 1600, 3200, 6400, 12800]
    errors = [0.3649, 0.3223, 0.2694, 0.2342, 0.2108, 0.1983, 0.1844, 0.1826, 0.1792]
    for points in (4, 5, 6):
        needed = fit(sizes[:points], errors[:points]).needed(errors[-1])
        assert needed.best < sizes[-1] / 2
        assert needed.low < sizes[-1] < needed.high
    ends = [fit(sizes[:points], errors[:points]).error(12800) for points in (4, 6, 9)]
    widths = [end.high - end.low for end in ends]
    assert widths == sorted(widths, reverse=True)


def test_published_exponents_say_what_more_data_buy():
    # Hestness 2017 saw exponents from -0.07 to -0.35. At -0.3 ten times the data halve the error,
    steep = PowerLaw(a=1.0, b=-0.3, c=0.0)
    assert steep.needed(steep.error(1000) / 2) == pytest.approx(1000 * 10, rel=0.01)
    # at -0.07 it takes twenty thousand times as many.
    flat = PowerLaw(a=1.0, b=-0.07, c=0.0)
    assert flat.needed(flat.error(1000) / 2) == pytest.approx(1000 * 20_000, rel=0.01)


def test_a_fit_reads_the_exponent_of_the_data_from_the_chinchilla_law():
    # Loss of a model of 10**9 parameters after D tokens: 1.69 + 406.4 / N**.34 + 410.7 / D**.28.
    tokens = [1e8 * 2**n for n in range(10)]
    losses = [1.69 + 406.4 / 1e9**0.34 + 410.7 / d**0.28 for d in tokens]
    found = fit(tokens, losses).law
    assert found.b == pytest.approx(-0.28, abs=1e-3)
    assert found.c == pytest.approx(1.69 + 406.4 / 1e9**0.34, abs=1e-2)


@given(laws, st.floats(10, 1e9))
def test_the_samples_needed_for_an_error_invert_the_curve(law: PowerLaw, samples: float):
    error = law.error(samples)
    # Near the floor the difference to it loses digits.
    lost = 1e-15 / (law.a * samples**law.b / error) / -law.b
    assert law.needed(error) == pytest.approx(samples, rel=1e-9 + 10 * lost)


def test_nothing_reaches_the_floor():
    law = PowerLaw(a=1.0, b=-0.5, c=0.1)
    assert law.needed(0.1) == law.needed(0.05) == math.inf
    assert fit(SIZES, curve(law, SIZES)).needed(0.05).best == math.inf


def test_a_curve_as_flat_as_can_be_needs_more_than_a_number_can_hold():
    assert PowerLaw(a=1.0, b=-0.001, c=0.0).needed(1e-3) == math.inf


def test_points_count_by_their_spreads():
    law = PowerLaw(a=2.0, b=-0.35, c=0.05)
    errors = curve(law, SIZES)
    errors[2] *= 1.5
    trusted = fit(SIZES, errors, [0.01 * e for e in errors])
    doubted = fit(SIZES, errors, [0.5 if n == 2 else 0.01 * e for n, e in enumerate(errors)])
    off = [abs(f.law.b - law.b) for f in (trusted, doubted)]
    assert off[1] < 0.02 < off[0]


def test_the_interval_is_never_narrower_than_the_spreads_say():
    law = PowerLaw(a=2.0, b=-0.35, c=0.05)
    errors = curve(law, SIZES)
    # Points that happen to lie on a curve.
    sure = fit(SIZES, errors).error(1e5)
    careful = fit(SIZES, errors, [0.05 * e for e in errors]).error(1e5)
    assert sure.high - sure.low < 1e-4 * sure.best
    assert careful.high - careful.low > 0.05 * careful.best


def test_a_higher_level_and_fewer_points_widen_the_interval():
    law = PowerLaw(a=2.0, b=-0.35, c=0.05)
    errors = noisy(law, SIZES, 0.03, seed=0)
    widths = []
    for points, level in ((8, 0.5), (8, 0.9), (5, 0.9)):
        low, _, high = fit(SIZES[:points], errors[:points], level=level).error(1e5)
        widths.append(high - low)
    assert widths == sorted(widths)


def test_the_order_of_the_points_and_their_unit_do_not_matter():
    law = PowerLaw(a=2.0, b=-0.35, c=0.05)
    errors = noisy(law, SIZES, 0.03, seed=1)
    forth = fit(SIZES, errors).needed(0.1)
    back = fit(SIZES[::-1], errors[::-1]).needed(0.1)
    assert back == pytest.approx(forth, rel=1e-6)
    thousands = fit([m / 1000 for m in SIZES], errors).needed(0.1)
    assert [1000 * n for n in thousands] == pytest.approx(list(forth), rel=1e-4)


def test_several_seeds_of_one_size_are_points_of_their_own():
    law = PowerLaw(a=2.0, b=-0.35, c=0.05)
    found = fit(SIZES * 2, noisy(law, SIZES * 2, 0.03, seed=2))
    assert found.points == 16


@pytest.mark.parametrize(
    ("sizes", "errors", "spreads", "says"),
    [
        ([100, 200, 400], [0.3, 0.2, 0.1], None, "takes 4 sizes or more"),
        ([100, 100, 200, 400], [0.3, 0.3, 0.2, 0.1], None, "of 3 sizes"),
        ([100, 200, 400, 800], [0.3, 0.2, 0.1], None, "4 sizes, 3 errors"),
        ([100, 200, 400, 800], [0.3, 0.2, 0.1, 0.05], [0.1], "1 spreads"),
        ([100, 200, 400, 800], [0.3, 0.2, 0.1, 0.0], None, "errors of a learning curve must be"),
        ([0, 200, 400, 800], [0.3, 0.2, 0.1, 0.05], None, "sizes of a learning curve must be"),
        ([100, 200, 400, 800], [0.3, 0.2, math.nan, 0.1], None, "Leave the odd points out"),
        ([100, 200, 400, 800], [0.1, 0.2, 0.3, 0.4], None, "does not fall with more data"),
        ([100, 200, 400, 800], [0.2, 0.2, 0.2, 0.2], None, "from 0.2 at 100 samples"),
    ],
)
def test_points_that_make_no_learning_curve_are_refused(sizes, errors, spreads, says):
    with pytest.raises(UsageError, match=says):
        fit(sizes, errors, spreads)


def test_targets_and_levels_that_make_no_sense_are_refused():
    with pytest.raises(UsageError, match="between 0 and 1"):
        fit(SIZES, curve(PowerLaw(1.0, -0.5, 0.0), SIZES), level=90)
    found = fit(SIZES, curve(PowerLaw(1.0, -0.5, 0.0), SIZES))
    for target in (0.0, -0.1, math.nan):
        with pytest.raises(UsageError, match="target error"):
            found.needed(target)


def test_curves_are_fitted_without_torch():
    code = "import sys, lockstep.predict.learning_curve; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
