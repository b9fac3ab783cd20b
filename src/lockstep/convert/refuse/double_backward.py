"""Refuse gradients that bypass backward or are differentiated again: DDP reduces neither."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.convert.refuse import Refusal, Stage
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import argument, constant

ORDER = Stage.METHOD, 60
_GRAD = "torch.autograd.grad"
_FUNCTIONAL = re.compile(
    r"(torch\.func|functorch|torch\.autograd\.functional)\."
    r"(grad|grad_and_value|vjp|jvp|jacrev|jacfwd|jacobian|hessian|hvp|functional_call)"
    r"|higher\.|learn2learn\.|torch\.nn\.utils\.stateless\."
)
_PARAMETERS = re.compile(r"parameters\(|\bparams?\b|\bweights?\b|\bfast_\w+")


def look(training: Training) -> Iterator[Refusal]:
    """Find `autograd.grad` with a graph or for parameters, and libraries for meta-learning."""
    for script in training.project.scripts:
        for call in script.calls:
            reason = _reason(training, script, call)
            if reason is not None and training.used(script, call):
                advice = (
                    "Write the penalty without create_graph, or keep the script on one GPU."
                    if "again" in reason
                    else "Take the gradients with loss.backward() and step with torch.optim."
                )
                yield Refusal(script, call, reason, advice)


def _reason(training: Training, script: Script, call: cst.Call) -> str | None:
    name = training.project.name(script, call.func) or ""
    last = call.func.attr.value if isinstance(call.func, cst.Attribute) else name
    if _FUNCTIONAL.match(name):
        return f"{name} computes gradients itself, and DDP averages only those of backward"
    if not (name == _GRAD or name.endswith("autograd.grad") or last == "backward"):
        return None
    graph = argument(call, "create_graph", 3 if last != "backward" else None)
    if graph is not None and constant(graph) not in (False, None):
        return (
            "the script differentiates a gradient again, and DDP averages only what one backward "
            "leaves in the parameters"
        )
    wanted = argument(call, "inputs", 1)
    if last != "backward" and wanted is not None and _PARAMETERS.search(script.code(wanted)):
        return "these gradients never reach DDP, which averages only those of backward"
    return None
