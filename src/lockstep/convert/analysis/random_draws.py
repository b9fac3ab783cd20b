"""Find which random generators a statement draws from, and whether others share them."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.analysis.run_order import is_read_after, names_set
from lockstep.convert.work import Work
from lockstep.source.script import Script
from lockstep.source.tree import argument, walk

_COMMON = {
    "torch": re.compile(
        r"torch\.(rand|randn|randint|randperm|rand_like|randn_like|normal|bernoulli|multinomial)$|"
        r"(.*\.)?random_split$|.*\.(normal_|uniform_|random_|bernoulli_)$"
    ),
    "numpy": re.compile(r"(np|numpy)\.random\.(?!default_rng|Generator|RandomState|seed)\w+$"),
    "random": re.compile(r"random\.(?!Random|SystemRandom|seed)\w+$"),
}
"""Patterns of calls that draw from a global generator."""
_MAKERS = re.compile(r"(numpy\.random\.(default_rng|RandomState)|torch\.Generator|random\.Random)$")


def drawn_by(work: Work, script: Script, call: cst.Call) -> set[str]:
    """Return the global generator that a call draws from, if any."""
    if argument(call, "generator") is not None:
        return set()
    name = work.project.title(script, call.func)
    return {kind for kind, pattern in _COMMON.items() if pattern.match(name)}


def drawn_from(work: Work, script: Script, node: cst.CSTNode) -> set[str]:
    """Return the global generators that a node draws from, also in functions that it calls."""
    calls = work.project.calls_below(script, node)
    return {kind for where, call in calls for kind in drawn_by(work, where, call)}


def shares_generator(work: Work, statement: cst.CSTNode) -> bool:
    """Return whether a statement uses a generator that later code draws from."""
    script, project = work.script, work.project
    own = names_set(statement)
    for part in walk(statement):
        if not isinstance(part, cst.Name) or part.value in own or part not in script.order:
            continue
        made = any(_MAKERS.match(name) for _, _, name in project.makers(script, part))
        if made and is_read_after(script, statement, part.value):
            return True
    return False
