"""Say how a shard differs that two replicas have computed."""

from __future__ import annotations

from lockstep.engine.recipe.prepare import some


def computed_by(one: int, other: int) -> str:
    """Return who computed a shard twice, from the ranks."""
    return f"replica {one} twice" if one == other else f"replica {one} and replica {other}"


def samples_differ(place: str, who: str, maker: str) -> str:
    """Say that the samples of a shard differ; `maker` prepares them beside the data set."""
    return (
        f"{place}: read by {who}, the samples differ. The data set or the {maker} remembers what "
        "it read before (a cache of random values, a counter), draws from a generator of its own, "
        "or depends on its process (its rank, the order of a set). Exact mode cannot keep its "
        "promise with these data."
    )


def gradients_differ(
    place: str, who: str, what: str, parameters: list[str], changed: list[str]
) -> str:
    """Say in which parameters of a program or recipe gradients differ, and what changed."""
    cause = (
        f"Between the two, this changed: {some(changed)}."
        if changed
        else "The code may count in a variable, draw from a generator of its own, depend on its "
        "rank or on the order of a set, or the device may have made an error."
    )
    return (
        f"{place}: computed by {who}, the gradients differ, first in {some(parameters)}. Exact "
        f"mode cannot keep its promise with this {what}. {cause}"
    )
