"""Refuse gradients of weights that bypass backward, or that are differentiated again."""

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
    """Find `autograd.grad` for parameters, and libraries for meta-learning."""
    for script in training.project.scripts:
        for call in script.calls:
            reason = _reason(training, script, call)
            if reason is not None and training.used(script, call):
                advice = "Take the gradients with loss.backward() and step with torch.optim."
                yield Refusal(script, call, reason, advice)


def _reason(training: Training, script: Script, call: cst.Call) -> str | None:
    name = training.project.name(script, call.func) or ""
    last = call.func.attr.value if isinstance(call.func, cst.Attribute) else name
    if _FUNCTIONAL.match(name):
        return f"{name} computes gradients itself, and DDP averages only those of backward"
    if not (name == _GRAD or name.endswith("autograd.grad") or last == "backward"):
        return None
    graph = argument(call, "create_graph", 3 if last != "backward" else None)
    again = graph is not None and constant(graph) not in (False, None)
    wanted = argument(call, "inputs", 1)
    of_weights = wanted is not None and _PARAMETERS.search(script.code(wanted))
    if again and (last == "backward" or of_weights):
        return (
            "the script differentiates gradients of weights again, and DDP averages only what one "
            "backward leaves in the parameters"
        )
    # A gradient with respect to the inputs stays with its samples.
    if last != "backward" and of_weights:
        return "these gradients never reach DDP, which averages only those of backward"
    return None
