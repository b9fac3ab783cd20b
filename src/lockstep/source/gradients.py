"""Where gradients are made, and where there are none."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.source.script import Script

_NONE = re.compile(r"no_grad|inference_mode")
_PERHAPS = re.compile(r"no_grad|inference_mode|set_grad_enabled")


def is_backward(script: Script, node: cst.CSTNode) -> bool:
    """Whether this is a call of backward."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return False
    return node.func.attr.value in ("backward", "manual_backward")


def stops_gradients(script: Script, node: cst.CSTNode, *, perhaps: bool = False) -> bool:
    """Whether a decorator or what stands behind `with` is no_grad or inference_mode.

    With `perhaps` also set_grad_enabled, which is told on the way.
    """
    return (_PERHAPS if perhaps else _NONE).search(script.code(node)) is not None


def without_gradient(script: Script, node: cst.CSTNode, *, perhaps: bool = False) -> bool:
    """Whether a place makes no gradients, by what its function has around it or upon it."""
    for parent in script.above(node):
        if isinstance(parent, cst.With):
            if any(stops_gradients(script, i.item, perhaps=perhaps) for i in parent.items):
                return True
        elif isinstance(parent, cst.FunctionDef):
            return any(
                stops_gradients(script, d.decorator, perhaps=perhaps) for d in parent.decorators
            )
    return False
