"""The task of lab 3: its answer passes, and each usual mistake is told apart."""

from __future__ import annotations

import pytest

from lockstep.labs.lab3_scale.tasks import RATE_AT, check

HEAD = "def rate_at(step, base_rate, world_size, warmup_steps):\n"


def judged(body: str) -> list[str]:
    names: dict[str, object] = {}
    exec(HEAD + body, names)
    return check(names)


@pytest.mark.parametrize(
    "body",
    [
        "    if warmup_steps == 0:\n        return base_rate * world_size\n"
        "    share = min(1, step / warmup_steps)\n"
        "    return base_rate * (1 + (world_size - 1) * share)\n",
        "    peak = base_rate * world_size\n"
        "    if step > warmup_steps or not warmup_steps:\n        return peak\n"
        "    start = peak / world_size\n"
        "    return start + (peak - start) * step / warmup_steps\n",
    ],
)
def test_other_ways_to_write_it_pass(body: str):
    assert judged(body) == []


def test_its_answer_passes_and_its_starter_does_not():
    assert RATE_AT.judge(RATE_AT.answer) == []
    assert "fill in" in RATE_AT.judge(RATE_AT.starter)[0]


RISE = "    if step >= warmup_steps:\n        return peak\n"
PEAK = "    peak = base_rate * world_size\n"
WRONG = {
    "GPUs of a node": (
        PEAK + RISE + "    return peak / 4 + (peak - peak / 4) * step / warmup_steps\n",
        "1/4 of the full rate, whatever `world_size` is",
    ),
    "from zero": (PEAK + RISE + "    return peak * step / warmup_steps\n", "rate of 0"),
    "from zero, a step on": (
        PEAK + RISE + "    return peak * (step + 1) / warmup_steps\n",
        "a rise from 0",
    ),
    "a step ahead": (
        PEAK + RISE + "    return base_rate + (peak - base_rate) * (step + 1) / warmup_steps\n",
        "off by one. Steps count from 0",
    ),
    "a step late": (
        PEAK
        + "    if step > warmup_steps:\n        return peak\n"
        + "    return base_rate + (peak - base_rate) * step / (warmup_steps + 1)\n",
        "Step 101 is the first with the full rate, not step `warmup_steps` = 100. Off by one?",
    ),
    "a step early": (
        PEAK + RISE + "    return base_rate + (peak - base_rate) * step / (warmup_steps - 1)\n",
        "not by `warmup_steps` - 1",
    ),
    "twice as long": (
        PEAK
        + "    share = min(1, step / (2 * warmup_steps))\n"
        + "    return base_rate + (peak - base_rate) * share\n",
        "Step 200 is the first with the full rate",
    ),
    "never": (
        PEAK
        + "    share = min(step, warmup_steps - 1) / warmup_steps\n"
        + "    return base_rate + (peak - base_rate) * share\n",
        "never reaches its peak",
    ),
    "no end": (
        PEAK + "    return base_rate + (peak - base_rate) * step / warmup_steps\n",
        "still rises after the warmup",
    ),
    "scaled twice": (
        "    peak = base_rate * world_size * world_size\n" + RISE + "    return base_rate\n",
        "you scaled it twice",
    ),
    "not scaled": ("    return base_rate\n", "multiply by `world_size`"),
    "square root": (
        "    peak = base_rate * world_size ** 0.5\n" + RISE + "    return base_rate\n",
        "square-root rule",
    ),
    "no rise": ("    return base_rate * world_size\n", "no rise at all"),
    "divided twice": (
        PEAK
        + RISE
        + "    start = base_rate / world_size\n"
        + "    return start + (peak - start) * step / warmup_steps\n",
        "divided twice",
    ),
    "a curve": (
        PEAK + RISE + "    return base_rate * world_size ** (step / warmup_steps)\n",
        "not a straight line",
    ),
    "no warmup": (
        PEAK
        + "    share = min(1, step / warmup_steps)\n"
        + "    return base_rate + (peak - base_rate) * share\n",
        "divides by zero",
    ),
    "nothing": ("    rate = base_rate\n", "a `return` is missing"),
    "a text": ("    return '0.1'\n", "it must be a number"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_usual_mistake_is_explained(name: str):
    body, told = WRONG[name]
    wrong = judged(body)
    assert len(wrong) == 1
    assert told in wrong[0]


def test_every_mistake_has_words_of_its_own():
    assert len({judged(body)[0] for body, _ in WRONG.values()}) == len(WRONG)


def test_another_name_is_refused():
    assert "no function `rate_at`" in check({"rate": lambda *given: 0.1})[0]
