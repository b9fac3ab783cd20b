"""Find the flags that argparse gives a script, and their defaults."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from lockstep.source.script import Script
from lockstep.source.tree import argument, constant


def default_of(flag: str, scripts: Iterable[Script]) -> tuple[Script, cst.BaseExpression] | None:
    """Return the default of `args.flag`, if an add_argument has one."""
    for script in scripts:
        default = _defaults(script).get(flag)
        if default is not None:
            return script, default
    return None


def _defaults(script: Script) -> dict[str, cst.BaseExpression]:
    """Return the defaults of all flags that a script adds; of several, the first."""
    if "flags" not in script.memo:
        found: dict[str, cst.BaseExpression] = {}
        for call in script.named_last("add_argument"):
            default = argument(call, "default") or _switch(call)
            for flag in _targets(call) if default is not None else ():
                found.setdefault(flag, default)  # type: ignore[arg-type]
        script.memo["flags"] = found
    known: dict[str, cst.BaseExpression] = script.memo["flags"]
    return known


def _targets(call: cst.Call) -> list[str]:
    """Return the names of args that an add_argument may fill."""
    target = constant(argument(call, "dest"))
    if isinstance(target, str):
        return [target]
    names = [constant(arg.value) for arg in call.args if arg.keyword is None]
    return [name.lstrip("-").replace("-", "_") for name in names if isinstance(name, str)]


def _switch(call: cst.Call) -> cst.BaseExpression | None:
    """Return the value of a switch that is not given: False, or True for store_false."""
    action = constant(argument(call, "action"))
    value = {"store_true": "False", "store_false": "True"}.get(str(action))
    return cst.Name(value) if value else None
