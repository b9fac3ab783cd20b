"""Measure a recipe, and give advice for each number of replicas."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from lockstep.console import Console
from lockstep.engine.recipe.recipe import Recipe
from lockstep.errors import PlanError
from lockstep.scaling.batch.advice import Advice, Measured, advise, candidates
from lockstep.tune.measure import Probe, optimizer_kind
from lockstep.world import gpu_count

REPLACED = {
    *("--replicas", "--steps", "--link", "--seeds", "--margin", "--out"),
    *("--global-batch", "--shards", "--learning-rate", "--epochs", "--warmup", "--warmup-start"),
    "--grow-to",
    "--grow-from",
}
"""Flags with a value that only tune has, or that its advice sets."""
ASSUMED_LINK = 12.5
"""Gigabytes per second between replicas if no exchange can be measured: 100 Gbit/s."""


def tune(
    probe: Probe,
    replicas: Sequence[int],
    *,
    steps: int,
    link: float | None,
    console: Console,
) -> dict[str, Any]:
    """Measure, then advise; return what `lockstep tune --json` prints."""
    recipe = probe.recipe
    console.say(f"Measuring the noise scale over {steps} steps ...")
    noise, facts = probe.noise(steps)
    measured = before_timing(recipe, facts["train_samples"], noise.critical_batch)
    most = candidates(measured, min(replicas))[-1] // min(replicas)
    most = min(most, facts["train_samples"])
    console.say(f"Measuring steps of up to {most:,} samples ...")
    sizes = probe.sizes(most)
    exchange, hides, way = _exchange(probe, replicas, facts["parameters"], link, console)
    measured = replace(measured, seconds=sizes.seconds, exchange=exchange, hides=hides)
    return {
        "recipe": recipe.name,
        "global_batch": recipe.global_batch,
        "learning_rate": recipe.learning_rate,
        "optimizer": measured.kind,
        "epochs": recipe.epochs,
        "train_samples": facts["train_samples"],
        "parameters": facts["parameters"],
        "device": facts["machine"]["device"],
        "noise": asdict(noise),
        "micro_batch": {
            "largest": max(sizes.seconds),
            "limit": sizes.limit,
            "seconds": sizes.seconds,
            "peak_memory_bytes": sizes.memory,
        },
        "exchange": {"seconds": exchange, "how": way},
        "one_replica_seconds": measured.seconds_in_all(1, recipe.global_batch),
        "advice": [asdict(advise(measured, number)) for number in replicas],
    }


def before_timing(recipe: Recipe, train_samples: int, critical_batch: float) -> Measured:
    """Return what is known of a recipe before anything is timed."""
    kind, betas = optimizer_kind(recipe)
    return Measured(
        global_batch=recipe.global_batch,
        epochs=recipe.epochs,
        train_samples=train_samples,
        learning_rate=recipe.learning_rate,
        warmup=recipe.warmup,
        shards=recipe.shards,
        kind=kind,
        betas=betas,
        critical_batch=critical_batch,
        seconds={},
        exchange={},
        hides=False,
    )


def _exchange(
    probe: Probe, replicas: Sequence[int], elements: int, link: float | None, console: Console
) -> tuple[dict[int, float], bool, str]:
    """Return seconds by replicas, whether backward hides them, and their source in words."""
    several = [number for number in replicas if number > 1]
    if not several:
        return {}, False, "one replica exchanges nothing"
    here = devices(probe.device)
    possible = [number for number in several if number <= here]
    if here >= 2 and not possible:
        possible = [2]
    if link is None and possible:
        console.say(f"Measuring the exchange of {', '.join(map(str, possible))} replicas ...")
        found = {number: probe.exchange(number, elements) for number in possible}
        hides = all(beside for _, beside in found.values())
        known = f"measured with {', '.join(map(str, possible))} replicas on this machine"
        more = "" if len(possible) == len(several) else "; for more, as a ring on the same link"
        return {number: spent for number, (spent, _) in found.items()}, hides, known + more
    rate = link or ASSUMED_LINK
    # In a ring, each replica sends everything but its share, twice.
    seconds = {n: 2 * (1 - 1 / n) * 4 * elements / (rate * 1e9) for n in several}
    assumed = "as given" if link else "assumed, as there is no second device here: give --link"
    return seconds, True, f"computed for a link of {rate:g} GB/s, {assumed}"


def devices(kind: str) -> int:
    """Return how many replicas this machine can run side by side."""
    if kind != "cpu":
        return gpu_count()
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def kept(arguments: Sequence[str]) -> list[str]:
    """Return the words after `tune`, without its flags and those that the advice replaces.

    >>> kept(["digits", "--model", "mlp((64, 10))", "--replicas=1,2", "--verify", "--epochs", "9"])
    ['digits', '--model', 'mlp((64, 10))']
    """
    alone = {"--verify", "--json"}
    words: list[str] = []
    skips = False
    for argument in arguments:
        if skips:
            skips = False
        elif argument.split("=")[0] in REPLACED | alone:
            skips = "=" not in argument and argument not in alone
        else:
            words.append(argument)
    return words


def command_of(typed: Sequence[str], advice: dict[str, Any]) -> str:
    """Return the command that follows the advice on what was `typed`.

    >>> advice = {"replicas": 2, "global_batch": 512, "shards": 4, "learning_rate": 0.2}
    >>> advice |= {"epochs": 5, "rate_factor": 1.0, "accumulation": 1}
    >>> command_of(["wrn"], advice)
    'lockstep train wrn --replicas 2 --global-batch 512 --shards 4 --learning-rate 0.2 --epochs 5'
    """
    words = ["lockstep train", shlex.join(kept(typed)), f"--replicas {advice['replicas']}"]
    words += [f"--global-batch {advice['global_batch']}", f"--shards {advice['shards']}"]
    words += [f"--learning-rate {advice['learning_rate']:.4g}", f"--epochs {advice['epochs']}"]
    if advice["rate_factor"] != 1.0:
        words += [
            f"--warmup {advice['warmup']:.4g}",
            f"--warmup-start {advice['warmup_start']:.3g}",
        ]
    if advice["accumulation"] > 1:
        words.append(f"--micro-batch {advice['micro_batch']}")
    return " ".join(words)


def followed(recipe: Recipe, advice: Advice | dict[str, Any]) -> Recipe:
    """Return the recipe changed as the advice says."""
    given = advice if isinstance(advice, dict) else asdict(advice)
    changed = replace(
        recipe,
        global_batch=given["global_batch"],
        shards=given["shards"],
        learning_rate=given["learning_rate"],
        epochs=given["epochs"],
        warmup=given["warmup"],
        warmup_start=given["warmup_start"],
        grow_to=None,
        grow_from=None,
    )
    if given["betas"] is None:
        return changed
    from functools import partial

    return replace(changed, optimizer=partial(recipe.optimizer, betas=tuple(given["betas"])))


def check_replicas(text: str) -> list[int]:
    """Read numbers such as `1,2,4`.

    >>> check_replicas("1,2,8")
    [1, 2, 8]
    """
    try:
        numbers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise PlanError(f"--replicas {text}: give numbers, such as 1,2,4,8.") from None
    for number in numbers:
        if number < 1 or number & (number - 1):
            raise PlanError(
                f"--replicas {text}: {number} is no power of two; only these cut the shards of a "
                "batch evenly. Try 1,2,4,8."
            )
    return numbers
