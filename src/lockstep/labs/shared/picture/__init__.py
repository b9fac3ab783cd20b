"""A picture that changes as its controls move.

The controls live in the page, so a drag is smooth whatever Python does. Python computes the figure
and sends plain data, which Plotly draws in the page. No cell of the notebook runs again.
"""

from __future__ import annotations

import base64
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets
from numpy.typing import NDArray

from lockstep.labs.shared.picture.controls import Choice, Control, Slider, Switch, steps

__all__ = ["Choice", "Control", "Figure", "Picture", "Slider", "Switch", "ground", "steps"]

Figure = dict[str, Any]
"""`data` and `layout` for Plotly, a `ground` and a `note`; optionally `frames` and their `pause` in
ms. A frame has new `data` for some of the `traces`, or shows their first `points`."""
HERE = Path(__file__).parent


def ground(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    values: NDArray[np.float64],
    colours: Sequence[tuple[float, str]],
) -> dict[str, Any]:
    """Return the background of a figure: a grid of values in 256 shades, rows by y.

    The page paints it once, while Plotly would redraw a heat map whenever a line moves.
    """
    low, high = float(values.min()), float(values.max())
    scaled = np.round(255.0 * (values - low) / max(high - low, 1e-300)).astype(np.uint8)
    stops = [int(colour[1:], 16) for _, colour in colours]
    parts = [[stop >> shift & 255 for stop in stops] for shift in (16, 8, 0)]
    at = [place for place, _ in colours]
    palette = [np.interp(np.linspace(0.0, 1.0, 256), at, part).round() for part in parts]
    return {
        "values": base64.b64encode(scaled.tobytes()).decode(),
        "rows": values.shape[0],
        "columns": values.shape[1],
        "colours": np.stack(palette, 1).astype(int).tolist(),
        "x": [float(x[0]), float(x[-1])],
        "y": [float(y[0]), float(y[-1])],
    }


@cache
def _script() -> str:
    """Return Plotly and picture.js as one module, so that the page loads nothing from elsewhere."""
    from plotly.offline import get_plotlyjs

    own = (HERE / "picture.js").read_text("utf-8")
    # Only the first picture of a page loads Plotly.
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
        # The page waits for an answer, so an unchanged figure must also count as new.
        turn = {"turn": self.places.get("turn", 0)}
        if not turn["turn"]:
            return self._draw(**values) | turn
        try:
            return self._draw(**values) | turn
        except Exception:
            # An exception here would reach nobody, and the page would wait for ever.
            return {"note": f"This picture failed:\n{traceback.format_exc(limit=-2)}"} | turn
