"""A picture that changes as its controls move.

The controls live in the page, so a drag is smooth whatever Python does; Python computes the figure
and sends plain data, which Plotly draws in the page. No cell of the notebook runs anew.
"""

from __future__ import annotations

import base64
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets
from numpy.typing import NDArray

from lockstep.labs.picture.controls import Choice, Control, Slider, Switch, steps

__all__ = ["Choice", "Control", "Figure", "Picture", "Slider", "Switch", "shades", "steps"]

Figure = dict[str, Any]
"""`data` and `layout` as Plotly takes them, and a `note`. Also `frames` and their `pause` in ms: a
frame has new `data` for some of the `traces`, or shows their first `points` alone."""
HERE = Path(__file__).parent


def shades(values: NDArray[np.float64]) -> dict[str, Any]:
    """A grid of values for a heat map, in 256 steps: a tenth of what it would be as text."""
    low, high = float(values.min()), float(values.max())
    scaled = np.round(255.0 * (values - low) / max(high - low, 1e-300)).astype(np.uint8)
    text = base64.b64encode(scaled.tobytes()).decode()
    rows, columns = values.shape
    return {"bdata": text, "dtype": "u1", "shape": f"{rows}, {columns}"}


@cache
def _script() -> str:
    """Plotly and our own part as one module: nothing is loaded from elsewhere."""
    from plotly.offline import get_plotlyjs

    own = (HERE / "picture.js").read_text()
    # A second picture on the page finds Plotly there already.
    return f"if (!globalThis.Plotly) {{\n{get_plotlyjs()}\n}}\n{own}"


class Picture(anywidget.AnyWidget):
    """A figure with controls; `draw` gets a value for each control by name."""

    _css = HERE / "picture.css"
    controls: Any = traitlets.List().tag(sync=True)
    places = traitlets.Dict().tag(sync=True)
    figure = traitlets.Dict().tag(sync=True)
    height = traitlets.Int(380).tag(sync=True)

    def __init__(
        self, draw: Callable[..., Figure], *, height: int = 380, **controls: Control
    ) -> None:
        self._draw, self._controls = draw, controls
        super().__init__(
            controls=[control.described(name) for name, control in controls.items()],
            places={name: control.at for name, control in controls.items()},
            height=height,
            _esm=_script(),
        )
        self.figure = self._drawn()
        self.observe(self._moved, names="places")

    def _moved(self, change: Any) -> None:
        self.figure = self._drawn()

    def _drawn(self) -> Figure:
        values = {
            name: control.values[self.places[name]] for name, control in self._controls.items()
        }
        # The page waits for an answer: also a figure that did not change must come as new.
        turn = {"turn": self.places.get("turn", 0)}
        if not turn["turn"]:
            return self._draw(**values) | turn
        try:
            return self._draw(**values) | turn
        except Exception:
            # Raised here it would reach nobody: the page would wait for ever.
            return {"note": f"This picture failed:\n{traceback.format_exc(limit=-2)}"} | turn
