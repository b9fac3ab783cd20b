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
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5d6776; --paper: #f6f7f9; --card: #fff;
  --line: #dde2e8; --plain: #8a8f98; --good: #16784d; --warn: #8a5a00;
  --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaee; --soft: #a3adba; --paper: #14181d;
  --card: #1d2329; --line: #363f49; --good: #5fcf9b; --bad: #ff8a80; --warn: #f0b75a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 1180px; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .7rem; }
p { margin: .6rem 0; max-width: 75ch; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; } .card { flex: 1 1 150px; }
.grid { display: grid; gap: .8rem; margin: .8rem 0;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 350px), 1fr)); }
.card, figure, .table, .banner, .item, section > pre { background: var(--card);
  border: 1px solid var(--line); border-radius: 8px; padding: .7rem .9rem; min-width: 0; }
.card, figcaption, .legend, tbody th { color: var(--soft); font-size: .85rem; }
.card b { display: block; color: var(--ink); font-size: 1.4rem; line-height: 1.4; }
.card.long { flex-basis: 100%; } .card.long b { font: .85rem/1.8 ui-monospace, monospace; }
.banner { border-left: 8px solid var(--tone); margin: 1rem 0; }
.banner b { display: block; font-size: 1.9rem; line-height: 1.3; color: var(--tone); }
.item { border-left: 4px solid var(--tone); margin: .8rem 0; }
h3 { font-size: 1rem; margin: 0; display: flex; flex-wrap: wrap; gap: .1rem .7rem; }
h3 span { color: var(--tone); } h3 code { margin-left: auto; font-weight: 400; }
code, pre { font: .85rem/1.6 ui-monospace, monospace; }
pre { margin: 0; white-space: pre-wrap; color: var(--soft); } pre b { color: var(--ink); }
.item pre { margin-top: .5rem; padding-top: .5rem; border-top: 1px solid var(--line); }
dl { display: grid; grid-template-columns: 10rem 1fr; gap: .15rem .9rem; margin: .3rem 0 0; }
dt { color: var(--soft); font-size: .85rem; line-height: 1.75; } dd { margin: 0; min-width: 0; }
@media (max-width: 600px) { dl { display: block; } dt { margin-top: .4rem; }
  h3 code { margin-left: 0; } }
figure { margin: .8rem 0; } .grid figure { margin: 0; }
figcaption, th { font-weight: 600; overflow-wrap: normal; } tbody th { font-weight: 400; }
.table { overflow-x: auto; padding: .3rem .9rem; margin: .8rem 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .9rem .35rem 0; text-align: left; font-size: .92rem; }
tr + tr > *, thead + tbody tr > * { border-top: 1px solid var(--line); }
table.numbers :is(th, td):not(:first-child) { text-align: right; overflow-wrap: normal; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1rem; }
i { display: inline-block; width: .75em; height: .75em; border-radius: 2px; margin-right: .45em; }
"""
_PLOT = '<div class="plot"'
_SCRIPT = """
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function draw() {
  const line = css("--line"), clear = "rgba(0,0,0,0)";
  const axis = {gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true};
  for (const plot of document.querySelectorAll(".plot")) {
    const {data, layout} = JSON.parse(plot.nextElementSibling.textContent);
    Plotly.react(plot, data, {...layout, paper_bgcolor: clear, plot_bgcolor: clear,
      font: {color: css("--ink"), size: 12, family: "system-ui, sans-serif"},
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      xaxis: {...axis, ...layout.xaxis}, yaxis: {...axis, ...layout.yaxis}},
      {responsive: true, displayModeBar: false});
  }
}
draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
"""


def write_page(path: Path, title: str, *parts: str) -> Path:
    """Write the page and return its path; include Plotly's script if there is a figure."""
    body, policy, scripts = "".join(parts), _POLICY, ""
    if _PLOT in body:
        from plotly.offline import get_plotlyjs

        policy += "; script-src 'unsafe-inline'"
        scripts = f"<script>{get_plotlyjs()}</script>\n<script>{_SCRIPT}</script>\n"
    page = f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
<h1>{escape(title)}</h1>
{body}
{scripts}</html>
"""
    # JSON can carry a lone surrogate, which UTF-8 cannot encode.
    replace_file(path, page.encode(errors="replace"))
    return path


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
