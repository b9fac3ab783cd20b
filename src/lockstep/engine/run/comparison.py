"""Compare one replica with N: the numbers, and whether N retain the accuracy of one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from lockstep.engine.recipe.recipe import Recipe

CONFIDENCE = 0.95


def largest_difference(one: Path, many: Path) -> float:
    """Return the largest difference of any weight or buffer between two runs' folders."""
    from safetensors.torch import load_file

    first, second = (load_file(folder / "weights.safetensors") for folder in (one, many))
    gaps = [
        (first[name].double() - second[name].double()).abs().max().item()
        for name in first
        if first[name].numel()
    ]
    return max(gaps, default=0.0)


def compare_mode(one: list[dict[str, Any]], many: list[dict[str, Any]]) -> dict[str, Any]:
    """Compare speed and weights of two lists of summaries, paired by seed."""
    pairs = list(zip(one, many, strict=True))
    speed_up = fmean(a["seconds"] for a in one) / fmean(b["seconds"] for b in many)
    replicas = many[0]["replicas"]
    return {
        "one": one,
        "many": many,
        "speed_up": speed_up,
        "efficiency": speed_up / replicas,
        "largest_difference": max(
            largest_difference(Path(a["folder"]), Path(b["folder"])) for a, b in pairs
        ),
        "identical": all(a["weights_sha256"] == b["weights_sha256"] for a, b in pairs),
    }


def retained(
    one: Sequence[float], many: Sequence[float], *, margin: float, lower_is_better: bool = False
) -> dict[str, Any]:
    """Test, in pairs, that N replicas are not worse than one by more than `margin`.

    The differences are those of each seed. The lower end of the one-sided 95% interval of their
    mean (Student's t) must lie above -margin. One seed allows no test: then the difference itself
    must keep the margin, and the sentence says that this is no test.

    >>> retained([0.90, 0.91, 0.92], [0.90, 0.92, 0.91], margin=0.03)["retained"]
    True
    """
    sign = -1.0 if lower_is_better else 1.0
    differences = [sign * (b - a) for a, b in zip(one, many, strict=True)]
    mean = fmean(differences)
    bound = None
    if not any(differences):
        ok, sentence = True, "the metric is the same for every seed"
    elif len(differences) == 1:
        ok = mean >= -margin
        sentence = (
            f"difference {mean:+.4f}, margin {margin:g}; one seed shows no noise, so this is no "
            "test: add --seeds 5"
        )
    else:
        from scipy.stats import t

        count = len(differences)
        spread = stdev(differences) / math.sqrt(count)
        bound = mean - float(t.ppf(CONFIDENCE, count - 1)) * spread
        ok = bound > -margin
        sentence = (
            f"mean difference {mean:+.4f} over {count} seeds; with {CONFIDENCE:.0%} confidence not "
            f"below {bound:+.4f}, where {-margin:+g} is allowed"
        )
    return {
        "one": list(one),
        "many": list(many),
        "differences": differences,
        "mean_difference": mean,
        "bound": bound,
        "confidence": CONFIDENCE,
        "retained": ok,
        "sentence": sentence,
    }


def judge(
    recipe: Recipe, replicas: int, modes: dict[str, Any], seeds: Sequence[int], margin: float
) -> dict[str, Any]:
    """Return the whole comparison as one document. Fast mode is tested, if it ran."""
    judged = modes.get("fast") or modes["exact"]
    one, many = (
        [summary["metrics"][recipe.metric] for summary in judged[side]] for side in ("one", "many")
    )
    accuracy = retained(one, many, margin=margin, lower_is_better=recipe.lower_is_better)
    proved = "exact" not in modes or modes["exact"]["identical"]
    name = recipe.metric.replace("_", " ")
    parts = [f"{name} {'retained' if accuracy['retained'] else 'NOT retained'}"]
    if "exact" in modes:
        parts.append(f"exact mode {'identical to the bit' if proved else 'NOT identical'}")
    return {
        "recipe": recipe.name,
        "metric": recipe.metric,
        "lower_is_better": recipe.lower_is_better,
        "target": recipe.target,
        "replicas": replicas,
        "seeds": list(seeds),
        "margin": margin,
        "modes": modes,
        "accuracy": accuracy,
        "verdict": {"ok": proved and accuracy["retained"], "sentence": "; ".join(parts)},
    }
