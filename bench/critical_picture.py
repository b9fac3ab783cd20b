"""Draw the result of bench/critical_batch.py: steps by batch size, measured and predicted.

python bench/critical_picture.py bench/results/critical_batch.json docs/ideas/critical-batch.svg
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from lockstep.scaling.batch.critical import Tradeoff, from_noise

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 430, 330, 58, 34, 14, 46
COLOURS = {"fit": "#2f78c4", "noise": "#d6453d"}


class Panel:
    """The picture of one problem, on logarithmic axes."""

    def __init__(self, name: str, found: dict[str, Any], shift: int) -> None:
        self.name, self.found, self.shift = name, found, shift
        rows = found["sweep"]["rows"]
        self.points = [(row["batch"], row["steps"]) for row in rows]
        self.x = (self.points[0][0] / 1.3, self.points[-1][0] * 1.3)
        steps = [s for _, s in self.points]
        self.y = (min(steps) / 1.6, max(steps) * 1.4)

    def place(self, batch: float, steps: float) -> tuple[float, float]:
        """Return the place of a point in the picture."""
        across, up = (
            math.log(v / low) / math.log(high / low)
            for v, (low, high) in ((batch, self.x), (steps, self.y))
        )
        x = self.shift + LEFT + across * (WIDTH - LEFT - RIGHT)
        return x, TOP + (1 - up) * (HEIGHT - TOP - BOTTOM)

    def curve(self, tradeoff: Tradeoff, colour: str, dash: str) -> list[str]:
        """Draw steps by batch size, and mark the critical batch."""
        batches = [self.x[0] * (self.x[1] / self.x[0]) ** (n / 60) for n in range(61)]
        places = [self.place(b, tradeoff.steps(b)) for b in batches]
        inside = [(x, y) for x, y in places if y >= TOP]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in inside)
        style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        mark_x, mark_y = self.place(
            tradeoff.critical_batch, tradeoff.steps(tradeoff.critical_batch)
        )
        return [
            f'<polyline points="{line}" {style}/>',
            f'<line x1="{mark_x:.1f}" x2="{mark_x:.1f}" y1="{mark_y:.1f}" '
            f'y2="{HEIGHT - BOTTOM}" stroke="{colour}" stroke-dasharray="2 3"/>',
        ]

    def draw(self) -> list[str]:
        """Draw the whole panel."""
        parts = [text(self.shift + LEFT, 18, f"{self.name}: steps to the target", "start", 13)]
        for power in range(20):
            for value, axis in ((4.0 * 4**power, "x"), (10.0 * 2**power, "y")):
                low, high = self.x if axis == "x" else self.y
                if low < value < high:
                    parts += self.tick(value, axis)
        fit = Tradeoff(**self.found["sweep"]["fit"])
        noise = self.found["noise"]
        predictions = [from_noise(c, noise["batch"]) for c in noise["shards"]["curves"]]
        predictions.sort(key=lambda one: one.critical_batch)
        middle = predictions[len(predictions) // 2]
        parts += self.curve(fit, COLOURS["fit"], "none")
        parts += self.curve(middle, COLOURS["noise"], "6 4")
        for batch, steps in self.points:
            x, y = self.place(batch, steps)
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="#333"/>')
        legend = [
            (f"fit: critical batch {fit.critical_batch:.0f}", COLOURS["fit"]),
            (f"from the noise scale: {middle.critical_batch:.0f}", COLOURS["noise"]),
        ]
        for row, (words, colour) in enumerate(legend):
            parts.append(
                text(self.shift + WIDTH - RIGHT, TOP + 14 + 16 * row, words, "end", 12, colour)
            )
        parts.append(text(self.shift + (WIDTH + LEFT) / 2, HEIGHT - 8, "batch size", "middle", 12))
        return parts

    def tick(self, value: float, axis: str) -> list[str]:
        """Draw a grid line and its number."""
        if axis == "x":
            x, _ = self.place(value, self.y[0])
            ends = f'x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"'
            words = text(x, HEIGHT - BOTTOM + 16, f"{value:,.0f}", "middle", 11)
        else:
            _, y = self.place(self.x[0], value)
            ends = f'x1="{self.shift + LEFT}" x2="{self.shift + WIDTH - RIGHT}" '
            ends += f'y1="{y:.1f}" y2="{y:.1f}"'
            words = text(self.shift + LEFT - 6, y + 4, f"{value:,.0f}", "end", 11)
        return [f'<line {ends} stroke="#ddd"/>', words]


def text(x: float, y: float, words: str, anchor: str, size: int, colour: str = "#333") -> str:
    """Draw words at a place."""
    style = f'text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style} font-family="sans-serif">{words}</text>'


def main() -> None:
    """Draw all problems of a result side by side."""
    source, target = map(Path, sys.argv[1:])
    document = json.loads(source.read_text())
    names = [
        name for name, value in document.items() if isinstance(value, dict) and "sweep" in value
    ]
    parts = []
    for number, name in enumerate(names):
        parts += Panel(name, document[name], number * WIDTH).draw()
    size = f'width="{WIDTH * len(names)}" height="{HEIGHT}"'
    frame = f'<rect {size} fill="white"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    target.write_text("\n".join([head, frame, *parts, "</svg>"]) + "\n")


if __name__ == "__main__":
    main()
