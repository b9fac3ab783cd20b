"""Refuse reinforcement learning: the model's own actions produce the samples."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.convert.analysis.losses import losses
from lockstep.convert.refuse import Refusal, Stage
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import dotted

ORDER = Stage.METHOD, 10
_MAKERS = re.compile(
    r"(gym|gymnasium|gym3|envpool|pettingzoo|procgen|dm_control|dm_env|minigrid|supersuit|"
    r"stable_baselines3?|pybullet_envs|ale_py|vizdoom|unityagents|mlagents_envs)\b"
)
_ADVICE = (
    "Run several environments in one process, or give each replica its own and average by hand."
)


def look(training: Training) -> Iterator[Refusal]:
    """Find steps of an environment, in programs whose losses do not come from DataLoaders."""
    if _from_loaders(training):
        return
    resets = {_last(call) for _, call in training.methods("reset")}
    for script, call in training.methods("step"):
        assert isinstance(call.func, cst.Attribute)
        made = training.project.makers(script, call.func.value)
        known = any(_MAKERS.match(name) for _, _, name in made)
        unpacked = _received(script, call) >= 3 and _last(call) in resets
        if (known or unpacked) and training.used(script, call):
            yield Refusal(
                script,
                call,
                "the model's action decides the next sample here, so there is no batch of given "
                "samples to divide among replicas",
                _ADVICE,
            )


def _from_loaders(training: Training) -> bool:
    """Return whether every loss is in a loop over a DataLoader that was made before all loops."""
    project = training.project
    given = {
        loop.node
        for loop in training.loops
        if not project.loops_around(loop.loader.script, loop.loader.call)
    }
    around = [project.loops_around(loss.script, loss.backward) for loss in losses(training)]
    return bool(around) and all(any(loop in given for _, loop in loops) for loops in around)


def _last(call: cst.Call) -> str:
    """Return `env`, for `self.env.step()`."""
    return (dotted(call.func) or "?.").rsplit(".", 2)[-2]


def _received(script: Script, call: cst.Call) -> int:
    """Return how many variables the result is unpacked into."""
    parent = script.parents[call]
    if not isinstance(parent, cst.Assign) or not isinstance(parent.targets[0].target, cst.Tuple):
        return 0
    return len(parent.targets[0].target.elements)
