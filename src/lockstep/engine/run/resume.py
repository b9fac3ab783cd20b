"""Continue a run from its folder: compare the recipes, and read the newest whole checkpoint."""

from __future__ import annotations

from typing import Any

from lockstep.console import Progress
from lockstep.engine.group import Group
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.run.checkpoint import Checkpoint, Checkpoints
from lockstep.engine.run.run_folder import RunFolder
from lockstep.errors import CheckpointError, FolderError


def find_checkpoint(
    job: Job, before: dict[str, Any], checkpoints: Checkpoints, progress: Progress
) -> Checkpoint | None:
    """Return the checkpoint to continue from, or None to start from step 0.

    `before` is the run.json of the run. Refuse a run of another recipe.
    """
    odd = differences(job.recipe, before["recipe"])
    if before.get("exact") != job.exact:
        odd.append(f"exact was {before.get('exact')}, now {job.exact}")
    if odd:
        raise FolderError(
            f"{job.out} holds a run of another recipe: {'; '.join(odd)}. "
            "Resume with the same recipe and flags, or name another folder."
        )
    if before["recipe"]["epochs"] != job.recipe.epochs:
        progress.warn(
            f"The run was planned for {before['recipe']['epochs']} epochs, now for "
            f"{job.recipe.epochs}: from here on its learning-rate schedule differs from that "
            "of an uninterrupted run."
        )
    if not checkpoints.files():
        progress.warn(f"{job.out} has no checkpoint yet: starting from step 0.")
        return None
    checkpoint, warnings = checkpoints.newest()
    for text in warnings:
        progress.warn(text)
    return checkpoint


def differences(recipe: Recipe, before: dict[str, Any]) -> list[str]:
    """Return how a recipe differs from what run.json has of it, besides its epochs."""
    return [
        f"{name} was {before.get(name)!r}, now {value!r}"
        for name, value in recipe.described().items()
        if name in before and before[name] != value and name != "epochs"
    ]


def refuse_other_code(job: Job, facts: dict[str, Any], samples: int, python: str) -> None:
    """Refuse a recipe whose functions or data have changed since the checkpoint."""
    then = facts.get("identities", {})
    if facts["machine"].get("python") != python:
        # Another Python compiles the same source to other code.
        then = {}
    now = job.recipe.identities()
    differences = [f"the code of {n} has changed" for n, h in now.items() if then.get(n, h) != h]
    if (before := facts.get("train_samples", samples)) != samples:
        differences.append(f"the data had {before} training samples, now {samples}")
    if differences:
        raise FolderError(
            f"{job.out} holds a run of another recipe: {'; '.join(differences)}. Resume with the "
            "same recipe and data, or name another folder."
        )


def warn_of_another_machine(then: dict[str, Any], now: dict[str, Any], progress: Progress) -> None:
    """Warn if the last bits depend on something that has changed since the checkpoint."""
    other = [f"{k} {then.get(k)} -> {v}" for k, v in now.items() if then.get(k) != v]
    if other:
        progress.warn(
            f"The checkpoint comes from another set-up ({', '.join(other)}): the last bits "
            "may differ from those of an uninterrupted run."
        )


def forget_after(
    step: int,
    group: Group,
    folder: RunFolder,
    checkpoints: Checkpoints,
    lines: int | None = None,
) -> None:
    """Drop what the run logged and saved past `step`; all replicas call this together.

    With `lines`, keep only the first ones: a program may log more at the step of its checkpoint.
    """
    # Every replica must have read the folder before the first one changes it.
    if len(set(group.objects(step))) > 1:
        raise CheckpointError(
            f"the replicas found different checkpoints in {folder.path}: it must be one "
            "folder that all machines see."
        )
    if group.world.is_first:
        folder.checkpoints.mkdir(exist_ok=True)
        folder.forget_after(step, lines)
        checkpoints.drop_after(step)
