"""The task of lab 0, and messages for the usual mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockstep.labs.shared.task import read_task
from lockstep.predict.learning_curve import PowerLaw

Names = dict[str, Any]
TARGET, LAW = 0.2, PowerLaw(a=3.0, b=-0.5, c=0.05)
"""The right answer is 400 samples, and every usual mistake gives a different number."""

_A, _B, _C = LAW
_MISTAKES = (
    ((TARGET / _A) ** (1 / _B), "that is the answer for a law without a floor: subtract c first."),
    ((TARGET / _A) ** (1 / _B) - _C, "c is an error, not a number of samples: subtract it first."),
    (((TARGET + _C) / _A) ** (1 / _B), "the law adds c, so subtract it on the other side."),
    ((TARGET - _C) ** (1 / _B), "a is missing: divide by it before you take the power."),
    (((TARGET - _C) * _A) ** (1 / _B), "the law multiplies by a, so divide by it."),
    ((TARGET - _C) ** (1 / _B) / _A, "divide by a before you take the power, not after."),
    (((TARGET - _C) / _A) ** _B, "the inverse of m**b is the power 1/b, not b."),
    (
        ((TARGET - _C) / _A) ** (-1 / _B),
        "b is already negative: the power is 1/b, without a minus.",
    ),
    (((TARGET - _C) / _A) ** -_B, "the inverse of m**b is the power 1/b, not -b."),
    (math.log((TARGET - _C) / _A) / _B, "that is the logarithm of m: take exp of it."),
    (math.log10((TARGET - _C) / _A) / _B, "that is the logarithm of m: take 10** of it."),
    (LAW.error(TARGET), "that is the error after training on `target` samples: solve for m."),
)


def check_needed(names: Names) -> list[str]:
    """Return what is wrong with `needed(target, a, b, c)`."""
    given = names.get("needed")
    if not callable(given):
        return ["There is no function called needed."]
    right = LAW.needed(TARGET)
    asked = f"needed({TARGET}, {_A:g}, {_B}, {_C}) should be {right:g}"
    found = given(TARGET, *LAW)
    if found is None:
        return ["It returns nothing: return the number of samples."]
    if not isinstance(found, int | float):
        return [f"{asked}; yours is {found!r}, which is not a number."]
    if not _near(found, right):
        for mistake, says in _MISTAKES:
            if math.isclose(found, mistake, rel_tol=1e-6):
                return [f"{asked}; yours is {found:.6g}: {says}"]
        return [f"{asked}; yours is {found:.6g}."]
    return _at_the_floor(given) or _elsewhere(given)


def _near(found: float, right: float) -> bool:
    """Return whether a number is right, exactly or rounded up."""
    return math.isclose(found, right, rel_tol=1e-6) or 0 <= found - right < 1 or found == right


def _at_the_floor(given: Callable[..., Any]) -> list[str]:
    # A negative number to the power -2 is real, but complex for most other powers.
    flat = LAW._replace(b=-0.3)
    for target, law, place in ((_C, LAW, "at the floor"), (_C / 2, flat, "below the floor")):
        says = f"A target of {target:g} is {place} of {_C:g}: no amount of data reaches it. "
        try:
            found = given(target, *law)
        except (ZeroDivisionError, ValueError, OverflowError) as error:
            return [f"{says}Yours raises {type(error).__name__}; return math.inf."]
        if isinstance(found, complex):
            return [f"{says}Yours returns a complex number, {found:.3g}; return math.inf."]
        if found != math.inf:
            return [f"{says}Yours returns {found!r}; return math.inf."]
    return []


def _elsewhere(given: Callable[..., Any]) -> list[str]:
    for target, law in ((0.3, PowerLaw(1.2, -0.35, 0.0)), (2.1, PowerLaw(410.7, -0.28, 2.0))):
        right, found = law.needed(target), given(target, *law)
        if not (isinstance(found, int | float) and _near(found, right)):
            numbers = ", ".join(f"{number:g}" for number in (target, *law))
            return [f"needed({numbers}) should be {right:,.0f}; yours is {found!r}."]
    return []


NEEDED = read_task(Path(__file__).with_name("tasks.md"), "needed", f"{__name__}:check_needed")
