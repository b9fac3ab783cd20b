"""Find where gradients are computed, and where they are switched off."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.source.script import Script

_NONE = re.compile(r"no_grad|inference_mode")
_PERHAPS = re.compile(r"no_grad|inference_mode|set_grad_enabled")


def is_backward(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a node is a call of backward."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return False
    return node.func.attr.value in ("backward", "manual_backward")


def stops_gradients(script: Script, node: cst.CSTNode, *, perhaps: bool = False) -> bool:
    """Return whether a decorator or the head of a `with` is no_grad or inference_mode.

    With `perhaps`, also set_grad_enabled, whose argument decides at run time.
    """
    return (_PERHAPS if perhaps else _NONE).search(script.code(node)) is not None


def without_gradient(script: Script, node: cst.CSTNode, *, perhaps: bool = False) -> bool:
    """Return whether the `with` or the decorator around a node switches gradients off."""
    for parent in script.above(node):
        if isinstance(parent, cst.With):
            if any(stops_gradients(script, i.item, perhaps=perhaps) for i in parent.items):
                return True
        elif isinstance(parent, cst.FunctionDef):
            return any(
                stops_gradients(script, d.decorator, perhaps=perhaps) for d in parent.decorators
            )
    return False
