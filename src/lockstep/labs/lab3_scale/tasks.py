"""The task of lab 3, and messages for the usual mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lockstep.labs.shared.task import read_task

Rate = Callable[[int, float, int, int], float]

BASE, STEPS = 0.1, 100
SIZES = (2, 8, 16)


def check(names: Mapping[str, Any]) -> list[str]:
    """Return the first thing that is wrong with `rate_at`: others would follow from it."""
    rate = names.get("rate_at")
    if not callable(rate):
        return ["There is no function `rate_at`. Keep the name from the task."]
    for look in (_number, _peak, _start, _line, _no_warmup, _one_replica):
        wrong = look(rate)
        if wrong:
            return [wrong]
    return []


def _number(rate: Rate) -> str:
    for step in (STEPS, STEPS // 2, 0):
        value: Any = rate(step, BASE, 8, STEPS)
        call = f"rate_at({step}, {BASE}, 8, {STEPS})"
        if value is None:
            return f"`{call}` returns None: a `return` is missing."
        if value is ...:
            return f"`{call}` returns `...`: fill in an expression."
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"`{call}` returns {value!r}; it must be a number."
        if not math.isfinite(value):
            return f"`{call}` returns {value}; a rate must be finite."
    return ""


def _peak(rate: Rate) -> str:
    """Check the rate after the warmup."""
    for size in SIZES:
        now, later = (rate(step, BASE, size, STEPS) for step in (STEPS, 3 * STEPS))
        wanted = BASE * size
        shown = f"With {size} replicas and a base rate of {BASE} the rate after the warmup is"
        if _same(later, wanted) and _same(now, wanted):
            continue
        if _same(later, wanted):
            steps = range(STEPS, 3 * STEPS + 1)
            first = next(s for s in steps if _same(rate(s, BASE, size, STEPS), wanted))
            why = " Off by one?" if first == STEPS + 1 else ""
            return (
                f"Step {first} is the first with the full rate, not step `warmup_steps` = {STEPS}."
                f"{why} The rise has `warmup_steps` steps, from 0 to `warmup_steps` - 1."
            )
        if later > now + 1e-9:
            return (
                f"The rate still rises after the warmup ({now:g} at step {STEPS}, {later:g} at "
                f"step {3 * STEPS}): it must stay from step `warmup_steps` on."
            )
        if _same(later, BASE):
            return f"{shown} still {BASE}: multiply by `world_size`."
        if _same(later, wanted * size):
            return (
                f"{shown} {later:g} = base * {size} * {size}: you scaled it twice. Scale it once."
            )
        if _same(later, BASE * math.sqrt(size)):
            return f"{shown} {later:g}: that is the square-root rule. Use the linear rule."
        if later < wanted:
            return f"{shown} {later:g}: it never reaches its peak of {BASE} * {size} = {wanted:g}."
        return f"{shown} {later:g}; the linear rule says {BASE} * {size} = {wanted:g}."
    return ""


def _start(rate: Rate) -> str:
    """Check the rate of the first step."""
    starts = [rate(0, BASE, size, STEPS) for size in SIZES]
    if all(_same(start, BASE) for start in starts):
        return ""
    shares = [start / (BASE * size) for start, size in zip(starts, SIZES, strict=True)]
    if all(start == 0.0 for start in starts):
        return (
            "Step 0 has a rate of 0 and moves nothing. The rise begins at `base_rate`, the rate of "
            "one replica, not at 0."
        )
    if all(_same(share, 1.0) for share in shares):
        return "Step 0 already has the full rate: there is no rise at all."
    if all(_same(share, 1.0 / STEPS) for share in shares):
        return (
            "Step 0 has the full rate / `warmup_steps`: a rise from 0. It begins at `base_rate`, "
            "the rate of one replica."
        )
    if all(_same(share, shares[0]) for share in shares):
        return (
            f"Step 0 has 1/{1 / shares[0]:.3g} of the full rate, whatever `world_size` is. Is that "
            "the number of GPUs in a node? The share is 1 / `world_size`, over all nodes."
        )
    early = [BASE + (BASE * size - BASE) / STEPS for size in SIZES]
    if all(map(_same, starts, early)):
        return "Step 0 has already risen by one step: off by one. Steps count from 0."
    if all(_same(s, BASE / size) for s, size in zip(starts, SIZES, strict=True)):
        return (
            "Step 0 has `base_rate / world_size`: you divided twice. `base_rate` is already the "
            "full rate divided by `world_size`."
        )
    return (
        f"Step 0 has a rate of {starts[1]:g} with {SIZES[1]} replicas; the rise begins at "
        f"`base_rate` = {BASE}."
    )


def _line(rate: Rate) -> str:
    """Check the steps of the rise."""
    size = SIZES[1]
    wanted = [BASE + (BASE * size - BASE) * step / STEPS for step in range(STEPS + 1)]
    given = [rate(step, BASE, size, STEPS) for step in range(STEPS + 1)]
    if all(map(_same, given, wanted)):
        return ""
    if all(_same(given[s], BASE + (BASE * size - BASE) * s / (STEPS - 1)) for s in range(STEPS)):
        return (
            f"Step {STEPS - 1} has the full rate, one step too early: divide by `warmup_steps`, "
            "not by `warmup_steps` - 1."
        )
    step = next(s for s in range(STEPS + 1) if not _same(given[s], wanted[s]))
    return (
        f"The rise is not a straight line from `base_rate` to the full rate: step {step} has "
        f"{given[step]:.6g}, the line has {wanted[step]:.6g}."
    )


def _no_warmup(rate: Rate) -> str:
    """Check a warmup without steps."""
    try:
        now = rate(0, BASE, 4, 0)
    except ZeroDivisionError:
        return "With `warmup_steps` = 0 it divides by zero. Return the full rate at step 0 then."
    if not _same(now, 4 * BASE):
        return f"With `warmup_steps` = 0 step 0 has {now:g}, not the full rate of {4 * BASE:g}."
    return ""


def _one_replica(rate: Rate) -> str:
    """Check one replica, which needs no scaling and no warmup."""
    for step in (0, STEPS // 2, STEPS):
        now = rate(step, 0.05, 1, STEPS)
        if not _same(now, 0.05):
            return (
                f"With one replica the rate stays `base_rate`: step {step} has {now:g} instead of "
                "0.05. Does the function contain a fixed number?"
            )
    return ""


def _same(value: float, wanted: float) -> bool:
    return math.isclose(value, wanted, rel_tol=1e-6, abs_tol=1e-12)


RATE_AT = read_task(Path(__file__).with_name("tasks.md"), "rate_at", f"{__name__}:check")
