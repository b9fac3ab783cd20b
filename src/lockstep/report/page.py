"""Build a self-contained HTML page of cards, tables, notes and Plotly figures. It opens offline.

Functions return pieces of HTML with their text escaped; `write_page` joins them. A figure is plain
data, because importing Plotly's classes takes longer than writing the page. A page without a figure
needs no Plotly and runs no script.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from lockstep.engine.run.atomic_write import replace_file

MOST_POINTS = 2000
"""Most points per curve; more would make the page heavy and the picture no better."""
BLUE, ORANGE, GREEN, PURPLE, RED = "#3b82c4", "#e07b39", "#2f9e6e", "#8a63c9", "#d6453d"
GREY = "#8a8f98"
Card = tuple[str, str, str]
Points = Sequence[tuple[Any, Any]]
Trace = dict[str, Any]

# The browser itself refuses to load anything from elsewhere.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_PLOT = '<div class="plot"'


def write_page(path: Path, title: str, *parts: str) -> Path:
    """Write the page and return its path; include Plotly's script if there is a figure."""
    body, policy, scripts = "".join(parts), _POLICY, ""
    if _PLOT in body:
        from plotly.offline import get_plotlyjs

        policy += "; script-src 'unsafe-inline'"
        scripts = f"<script>{get_plotlyjs()}</script>\n<script>\n{_beside('page.js')}</script>\n"
    page = f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{_beside("page.css")}</style>
<h1>{escape(title)}</h1>
{body}
{scripts}</html>
"""
    # JSON can carry a lone surrogate, which UTF-8 cannot encode.
    replace_file(path, page.encode(errors="replace"))
    return path


def _beside(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def section(title: str, *parts: str) -> str:
    """Return a heading with its content."""
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>\n"


def paragraph(text: str) -> str:
    """Return a paragraph of text."""
    return f"<p>{escape(text)}</p>\n"


def sentence(text: str) -> str:
    """Turn words into a sentence.

    >>> sentence("accuracy retained"), sentence("Nothing found.")
    ('Accuracy retained.', 'Nothing found.')
    """
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def banner(word: str, text: str, tone: str) -> str:
    """Return a word in large type with a sentence; `tone` is good, warn, bad or plain."""
    style = f'class="banner" style="--tone: var(--{tone})"'
    return f"<div {style}><b>{escape(word)}</b>{escape(text)}</div>\n"


def cards(items: Iterable[Card]) -> str:
    """Return cards of (name, value, note). A long value takes a whole row."""
    pieces = [
        f'<div class="card{" long" if len(value) > 40 else ""}">'
        f"{escape(name)}<b>{escape(value)}</b>{escape(note)}</div>"
        for name, value, note in items
    ]
    return f'<div class="cards">{"".join(pieces)}</div>\n'


def item(
    tone: str, word: str, title: str, place: str, rows: Iterable[tuple[str, str]], *parts: str
) -> str:
    """Return one finding: its severity, title and place, rows of (name, text), and more `parts`."""
    lines = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in rows)
    head = f"<span>{escape(word)}</span>" if word else ""
    head += escape(title) + (f"<code>{escape(place)}</code>" if place else "")
    style = f'class="item" style="--tone: var(--{tone})"'
    return f"<article {style}><h3>{head}</h3><dl>{lines}</dl>{''.join(parts)}</article>\n"


def verbatim(lines: Iterable[str], stands_out: Callable[[str], bool] = lambda line: False) -> str:
    """Return the output of a program line by line; `stands_out` picks the bold lines."""
    said = (f"<b>{escape(a)}</b>" if stands_out(a) else escape(a) for a in lines)
    return f"<pre>{chr(10).join(said)}</pre>\n"


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    colours: Mapping[str, str] | None = None,
) -> str:
    """Return a table; without `columns` it lists facts. `colours` mark rows by their names."""
    names = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    head = f"<thead><tr>{names}</tr></thead>" if columns else ""
    body = "".join(
        f'<tr><th scope="row">{_chip((colours or {}).get(name))}{escape(name)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    kind = "numbers" if columns else "facts"
    return f'<div class="table"><table class="{kind}">{head}<tbody>{body}</tbody></table></div>\n'


def legend(colours: Mapping[str, str]) -> str:
    """Return names beside their colours; unlike Plotly's legend it wraps on a narrow screen."""
    items = "".join(f"<span>{_chip(c)}{escape(name)}</span>" for name, c in colours.items())
    return f'<div class="legend">{items}</div>\n'


def _chip(colour: str | None) -> str:
    return f'<i style="background:{escape(colour)}"></i>' if colour else ""


def grid(*figures: str) -> str:
    """Return figures side by side, as far as they fit."""
    return f'<div class="grid">{"".join(figures)}</div>\n'


def figure(
    title: str, data: Iterable[Trace], *, x: str = "", height: int = 320, **layout: Any
) -> str:
    """Return a Plotly figure, or nothing if no trace has data."""
    traces = [trace for trace in data if trace["x"]]
    if not traces:
        return ""
    layout = {
        "margin": {"l": 10, "r": 16, "t": 28, "b": 10},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "showlegend": len(traces) > 1,
        "xaxis": {"title": {"text": label(x)}},
        **layout,
    }
    # Without "<" no text can close the element; JSON.parse restores the sign.
    content = json.dumps({"data": traces, "layout": layout}).replace("<", "\\u003c")
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'{_PLOT} style="height:{height}px"></div>'
        f'<script type="application/json">{content}</script></figure>\n'
    )


def curve(name: str, points: Points, colour: str, **line: Any) -> Trace:
    """Return a line through points; a value that is not a number leaves a gap."""
    points = thin([(x, y if is_number(y) else None) for x, y in points])
    return {
        "x": [x for x, _ in points],
        "y": [y for _, y in points],
        "name": label(name),
        # A line through one point, or between two gaps, cannot be seen.
        "mode": "lines+markers" if len(points) <= 40 else "lines",
        "line": {"color": colour, "width": 2} | line,
        "marker": {"size": 5},
    }


def level(line: Trace, value: float | None, name: str = "target") -> list[Trace]:
    """Return a dashed line at a value, as long as the curve `line`."""
    if value is None or not line["x"]:
        return []
    ends = [(line["x"][0], value), (line["x"][-1], value)]
    return [curve(f"{name} {value:g}", ends, RED, dash="dash", width=1.5) | {"mode": "lines"}]


def bars(name: str, lanes: Sequence[str], lengths: Sequence[float | None], colour: str) -> Trace:
    """Return horizontal bars, one per lane."""
    return {
        "type": "bar",
        "orientation": "h",
        "x": lengths,
        "y": [label(lane) for lane in lanes],
        "name": label(name),
        "marker": {"color": colour},
        "customdata": lengths,
        "hovertemplate": "%{y}<br>%{fullData.name}: %{customdata:.3f} ms<extra></extra>",
    }


def thin(points: Points) -> Points:
    """Keep up to MOST_POINTS: the lowest and highest of each stretch, so that all peaks stay."""
    if len(points) <= MOST_POINTS:
        return points
    size = math.ceil(2 * len(points) / MOST_POINTS)
    kept: list[tuple[Any, Any]] = []
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        values = [(y, x) for x, y in stretch if y is not None] or [(None, stretch[0][0])]
        kept += sorted({(x, y) for y, x in (min(values), max(values))})
    return kept


def label(text: str) -> str:
    """Escape text for a figure: Plotly would read some HTML in it."""
    return escape(text, quote=False)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def number(value: Any) -> str:
    """Format a number for people.

    >>> number(0.98611), number(4319.87), number(1437), number(None)
    ('0.9861', '4,320', '1,437', '-')
    """
    if not isinstance(value, int | float):
        return "-"
    return f"{value:,.0f}" if isinstance(value, int) or 1000 <= abs(value) < 1e9 else f"{value:.4g}"
