"""Draw the runs as curves of accuracy, and find which reaches a target first."""

from __future__ import annotations

from lockstep.labs.lab3_scale.runs import Run, Runs
from lockstep.labs.shared.drawing import COLOURS, Figure, axes, line
from lockstep.report.page import GREY

AXES = {"seconds": "seconds of training", "epochs": "epochs", "steps": "optimizer steps"}


def reached(run: Run, target: float) -> int | None:
    """Return the index of the first evaluation that reaches the target."""
    return next((n for n, value in enumerate(run.accuracy) if value >= target), None)


def places(run: Run, axis: str) -> list[float]:
    """Return the places of a run's evaluations on an axis."""
    if axis == "epochs":
        return [float(n + 1) for n in range(len(run.accuracy))]
    return [float(value) for value in (run.seconds if axis == "seconds" else run.steps)]


def figure(found: Runs, *, axis: str, target: float, **shown: bool) -> Figure:
    """Draw the runs that are `shown` (`run0`, `run1`, ...), and the target."""
    data = []
    said = []
    furthest = 0.0
    for number, run in enumerate(found.each()):
        x = places(run, axis)
        furthest = max(furthest, *x)
        if not shown.get(f"run{number}", True):
            continue
        curve = line(run.short, x, run.accuracy, COLOURS[number])
        data.append(curve | {"mode": "lines+markers", "marker": {"size": 7}})
        first = reached(run, target)
        when = "never" if first is None else f"{x[first]:.3g}"
        ended = " (its loss became NaN)" if run.diverged else ""
        said.append(f"{run.short}: {when}{ended}")
    data.append(line(f"target {target:g}", [0.0, furthest], [target] * 2, GREY, dash="dash"))
    layout = axes(AXES[axis], "test accuracy", y_axis={"range": [0.0, 1.02]})
    note = f"{AXES[axis].capitalize()} until {target:g}:\n" + "\n".join(said)
    return {"data": data, "layout": layout, "note": note}
