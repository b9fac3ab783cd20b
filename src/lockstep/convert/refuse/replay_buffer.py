"""Refuse sampling from a buffer that the program fills while it trains."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from lockstep.convert.refuse import Refusal, Stage
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.training_loops import training_loops
from lockstep.source.tree import dotted

ORDER = Stage.METHOD, 20
_FILLS = (
    "append", "appendleft", "push", "add", "store", "extend", "put", "insert", "remember",
    "cache", "record", "add_batch", "store_transition", "add_transition", "save_transition",
)  # fmt: skip
_DRAWS = "sample", "sample_batch", "get_batch", "sample_buffer", "make_batch", "draw"
_CHOICES = (
    "random.sample", "random.choice", "random.choices", "numpy.random.choice",
    "numpy.random.randint",
)  # fmt: skip
_ADVICE = (
    "Keep one process that fills the buffer, or decide by hand what each replica's buffer holds."
)


def look(training: Training) -> Iterator[Refusal]:
    """Find containers that a training loop both fills and draws samples from."""
    fills = [
        (_name(call.func.value), _loops(training, script, call, call.func.value))
        for script, call in training.methods(*_FILLS)
        if isinstance(call.func, cst.Attribute)
    ]
    for script, call, container in _drawn(training):
        loops = _loops(training, script, call, container)
        if any(name == _name(container) and loops & others for name, others in fills):
            yield Refusal(
                script,
                call,
                f"the samples come from `{script.code(container)}`, which the training "
                "fills, and each replica would fill and draw from its own buffer",
                _ADVICE,
            )


def _drawn(training: Training) -> Iterator[tuple[Script, cst.Call, cst.CSTNode]]:
    for script, call in training.methods(*_DRAWS):
        assert isinstance(call.func, cst.Attribute)
        yield script, call, call.func.value
    for script, call in training.named(*_CHOICES):
        for container in _containers(call):
            yield script, call, container


def _containers(call: cst.Call) -> Iterator[cst.CSTNode]:
    """Yield `memory`, for `random.sample(memory, 32)` and `np.random.choice(len(memory), 32)`."""
    for arg in call.args:
        value = arg.value
        if isinstance(value, cst.Call) and dotted(value.func) in ("len", "list") and value.args:
            value = value.args[0].value
        if dotted(value) is not None:
            yield value


def _name(node: cst.CSTNode) -> str:
    """Return the last part of a name: `self.memory` of an agent is `agent.memory` elsewhere."""
    return (dotted(node) or "?").rsplit(".", 1)[-1]


def _loops(
    training: Training, script: Script, call: cst.Call, container: cst.CSTNode
) -> set[cst.CSTNode]:
    """Return the training loops around a call, except those that make a new container each turn."""
    if not training.used(script, call):
        return set()
    trains = {loop for _, loop, _ in training_loops(training)}
    found = script.scope_of(call).find(dotted(container) or "")
    made = [b.node for b in found[1] if b.kind == "assign"] if found else []
    return {
        loop
        for _, loop in training.project.loops_around(script, call)
        if loop in trains and not any(script.inside(node, loop) for node in made)
    }
