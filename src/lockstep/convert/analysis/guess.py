"""Guess by reading what a run would show. Only for programs that are not run."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.convert.analysis.batch_kinds import MEAN, SUM, kinds
from lockstep.convert.analysis.blocks import calls_in
from lockstep.convert.analysis.output_names import opened, stores
from lockstep.convert.analysis.parts import Parts
from lockstep.convert.observe import Draw, Forward, Made, Seen, SeenLoader, Spot
from lockstep.convert.sites import span_of
from lockstep.convert.work import Work
from lockstep.source.gradients import without_gradient
from lockstep.source.script import Script

_DRAWS = {
    "torch": re.compile(
        r"torch\.(rand|randn|randint|randperm|rand_like|randn_like|normal|bernoulli|multinomial)$|"
        r"(.*\.)?random_split$|.*\.(normal_|uniform_|random_|bernoulli_)$"
    ),
    "numpy": re.compile(r"(np|numpy)\.random\.(?!default_rng|Generator|RandomState|seed)\w+$"),
    "random": re.compile(r"random\.(?!Random|SystemRandom|seed)\w+$"),
}
"""Patterns of calls that draw from a global generator."""
_ASKS = re.compile(r"exists|isfile|is_file|isdir|is_dir")
_MISSING = re.compile(rf"not .*({_ASKS.pattern})\(", re.DOTALL)


def guessed(parts: Parts) -> Seen:
    """Return what the text of a program suggests."""
    seen = Seen(ran=False)
    for loader in parts.trained_on:
        span = span_of(loader.script, loader.call)
        looks = any(not loop.trains for loop in loader.loops)
        seen.loaders.append(SeenLoader(span=span, direct=True, looks=looks))
    trained = {
        (script, script.function_of(act.call))
        for script, _, acts in parts.turns
        for act in acts
        if act.kind == "backward"
    } | {(script, script.function_of(loop)) for script, loop, _ in parts.turns}
    for script in parts.project.scripts:
        for call in script.calls:
            if parts.is_model(script, call.func) is None or without_gradient(script, call):
                continue
            if not parts.training.used(script, call):
                continue
            learns = (script, script.function_of(call)) in trained
            owner = script.class_of(call)
            inside = owner is not None and bool(script.methods(owner, "forward"))
            seen.forwards.append(
                Forward(
                    span=span_of(script, call), models=frozenset(), learns=learns, inside=inside
                )
            )
    seen.norms = any("BatchNorm" in s.text or "resnet" in s.text for s in parts.project.scripts)
    for script, _, acts in parts.turns:
        steps = [(a.kind, span_of(script, a.call)) for a in acts if a.call in script.order]
        if any(kind == "step" for kind, _ in steps):
            seen.acts.append([x for x in steps if x[0] == "step"][-1:])
    seen.made = [one for script in parts.project.scripts for one in _made(parts, script)]
    for script in parts.project.scripts:
        for call in script.calls:
            function = script.function_of(call)
            if function is not None and function.name.value in ("__getitem__", "__iter__"):
                name = parts.project.title(script, call.func)
                for library, pattern in _DRAWS.items():
                    if pattern.match(name):
                        streams = function.name.value == "__iter__"
                        seen.draws.append(
                            Draw(
                                span=span_of(script, call),
                                library=library,
                                fetching=True,
                                by_sample=not streams,
                                in_stream=streams and library != "torch",
                            )
                        )
    return seen


def _made(parts: Parts, script: Script) -> Iterator[Made]:
    """Yield files that are made if they are missing: `if not exists(path): make(path)`."""
    project = parts.project

    def writes(where: Script, node: cst.CSTNode) -> bool:
        return isinstance(node, cst.Call) and (
            stores(project, where, node) or opened(project, where, node) is not None
        )

    for node in script.order:
        if isinstance(node, cst.If) and _MISSING.search(script.code(node.test)):
            asked = [call for call in calls_in(node.test) if _ASKS.search(script.code(call.func))]
            written = [
                (where, call)
                for where, call in project.reached(script, node.body, writes)
                if isinstance(call, cst.Call)
            ]
            if asked and written:
                own = [span_of(script, call) for call in calls_in(node.body)]
                spans = (span_of(*written[0]), *own)
                yield Made(spans, ((span_of(script, asked[0]),),))


def guessed_readouts(work: Work) -> tuple[tuple[Spot, str], ...]:
    """Return how numbers that training reads with `item` seem to combine."""
    found = []
    functions = set()
    for forward in work.seen.forwards:
        call = work.at(forward.span) if forward.learns else None
        if call is not None:
            functions.add((work.script, work.script.function_of(call)))
    for script in work.scripts:
        for call in script.named_last("item"):
            assert isinstance(call.func, cst.Attribute)
            if (script, script.function_of(call)) in functions and not without_gradient(
                script, call
            ):
                kind = kinds(work, script, call.func.value)
                if kind in ({MEAN}, {SUM}):
                    found.append(((span_of(script, call), ""), "mean" if kind == {MEAN} else "sum"))
    return tuple(found)
