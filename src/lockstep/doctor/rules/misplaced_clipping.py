"""Clipping in the wrong place does not clip the gradient that the step applies."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.accumulation import Window, is_one, timed, windows
from lockstep.source.training import Training
from lockstep.source.training_loops import Act, training_loops
from lockstep.source.tree import argument, constant

_SWITCH = re.compile(r"clip|norm|amp|scaler|fp16", re.I)


def look(training: Training) -> Iterator[Found]:
    """Find clips on the wrong side of backward, unscale_, step or the end of a window."""
    gathering = [window for window in windows(training) if not is_one(training, window)]
    for _, loop, found in training_loops(training):
        parts = [w for w in gathering if loop in _micro_loop(w)]
        for number, clip in enumerate(found):
            if clip.kind != "clip" or clip.loops:
                continue
            before = [act for act in found[:number] if act.beside(clip)]
            after = [act for act in found[number + 1 :] if act.beside(clip)]
            # `if scaled: unscale, clip / else: clip`: the second clip is for runs without a scaler.
            apart = any(act.kind == "unscale" and not act.beside(clip) for act in found)
            reason = _reason(training, clip, before, after, apart)
            gathered = any(act.call is w.backward.call for act in before for w in parts)
            if reason is None and gathered and _always(training, clip):
                reason = "every micro-step clips the gradients gathered so far, not the whole sum"
            if reason is not None:
                yield Found(clip.script, clip.call, reason)


def _micro_loop(window: Window) -> list[cst.For | cst.While]:
    return [loop for _, loop in window.backward.loops] or [window.loop]


def _always(training: Training, clip: Act) -> bool:
    """Return whether the clip runs in all turns or in none, as under `if args.clip > 0`."""
    tests = [script.code(test.test) for script, test, _ in clip.branches]
    return timed(training, clip) is None and all(_SWITCH.search(test) for test in tests)


def _reason(
    training: Training, clip: Act, before: list[Act], after: list[Act], apart: bool
) -> str | None:
    """Return what is wrong with the order, or None."""
    around = (item.item for _, block in clip.withs for item in block.items)
    calls = (call.func for call in around if isinstance(call, cst.Call))
    if any(isinstance(func, cst.Attribute) and func.attr.value == "no_sync" for func in calls):
        return "under no_sync every rank clips its own gradients before they are averaged"
    past = [act.kind for act in before if act.kind in ("backward", "step")]
    next_ = [act.kind for act in after if act.kind in ("backward", "step", "clip")]
    if past[-1:] != ["backward"] and next_[:2] == ["backward", "step"]:
        return "this clips before backward, when the new gradients do not exist yet"
    if past[-2:] == ["backward", "step"] and "step" not in next_[:1]:
        first = [act.kind for act in before]
        if "clip" not in first[len(first) - 1 - first[::-1].index("backward") :]:
            return "this clips after the step, so the step uses unclipped gradients"
    following = next((act for act in after if act.kind == "step"), None)
    if past[-1:] == ["backward"] and following is not None and _is_scaled(training, following):
        kinds = [act.kind for act in before]
        if not apart and "unscale" not in kinds and "get_scale" not in clip.script.code(clip.call):
            return "the gradients are still multiplied by the loss scale when they are clipped"
    return None


def _is_scaled(training: Training, step: Act) -> bool:
    """Return whether this is the step of a GradScaler that the source does not switch off."""
    assert isinstance(step.call.func, cst.Attribute)
    for _, call, name in training.project.makers(step.script, step.call.func.value):
        if name.endswith("GradScaler"):
            return constant(argument(call, "enabled")) is not False
    return False
