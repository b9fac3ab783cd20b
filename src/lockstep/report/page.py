"""One self-contained HTML page: cards, tables, notes and Plotly figures. It opens offline.

Every function here returns a piece of HTML whose text is escaped; `write_page` joins the pieces.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from lockstep.engine.folder import replace_file

MOST_POINTS = 2000
"""Points per curve; more make a page heavy and no picture better."""
BLUE, ORANGE, GREEN, PURPLE, RED = "#3b82c4", "#e07b39", "#2f9e6e", "#8a63c9", "#d6453d"
Points = Sequence[tuple[float, float | None]]

# Nothing may be loaded from elsewhere: the browser itself refuses it.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5d6776; --paper: #f6f7f9;
  --card: #ffffff; --line: #dde2e8; --good: #16784d; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaee; --soft: #a3adba; --paper: #14181d;
  --card: #1d2329; --line: #363f49; --good: #5fcf9b; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 1180px; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .7rem; }
p { margin: .6rem 0; max-width: 75ch; overflow-wrap: anywhere; }
figcaption, .legend, .card .name, .card .note { color: var(--soft); }
.grid, .cards { display: grid; gap: .8rem; margin: .8rem 0;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); }
.cards { grid-template-columns: repeat(auto-fit, minmax(min(100%, 165px), 1fr)); }
.card, figure, .table, .banner { background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: .7rem .9rem; min-width: 0; overflow-wrap: anywhere; }
.card .name, .card .note { font-size: .82rem; }
.card .value { font-size: 1.45rem; font-weight: 600; line-height: 1.3; }
.card.long { grid-column: 1 / -1; }
.card.long .value { font: .85rem/1.6 ui-monospace, monospace; }
.banner { border-left: 8px solid var(--soft); margin: 1rem 0; }
.banner b { display: block; font-size: 1.9rem; line-height: 1.2; }
.banner.good { border-left-color: var(--good); } .banner.good b { color: var(--good); }
.banner.bad { border-left-color: var(--bad); } .banner.bad b { color: var(--bad); }
figure { margin: .8rem 0; } .grid figure { margin: 0; }
figcaption { font-weight: 600; font-size: .92rem; }
.table { overflow-x: auto; padding: .3rem .9rem; margin: .8rem 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .9rem .35rem 0; text-align: left; vertical-align: top; }
th { font-weight: 600; } tbody th { font-weight: 400; color: var(--soft); }
tr + tr > *, thead + tbody tr > * { border-top: 1px solid var(--line); }
table.numbers :is(th, td):not(:first-child) { text-align: right; white-space: nowrap; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1rem; font-size: .85rem; }
.chip { display: inline-block; width: .75em; height: .75em; border-radius: 2px;
  margin-right: .45em; }
"""
_SCRIPT = """
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const touch = matchMedia("(pointer: coarse)").matches;
function draw() {
  const clear = "rgba(0,0,0,0)", line = css("--line");
  const axis = {gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true};
  for (const plot of document.querySelectorAll(".plot")) {
    const {data, layout} = JSON.parse(plot.nextElementSibling.textContent);
    Plotly.react(plot, data, {...layout, paper_bgcolor: clear, plot_bgcolor: clear,
      font: {color: css("--ink"), size: 12, family: "system-ui, sans-serif"},
      dragmode: touch ? false : "zoom", hoverlabel: {namelength: -1},
      xaxis: {...axis, ...layout.xaxis}, yaxis: {...axis, ...layout.yaxis}},
      {responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"]});
  }
}
draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
"""


def write_page(path: Path, title: str, *parts: str) -> Path:
    """Write the page as a whole, Plotly's script included."""
    from plotly.offline import get_plotlyjs

    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
{"".join(parts)}
<noscript><p>The figures need JavaScript; the numbers and tables do not.</p></noscript>
<script>{get_plotlyjs()}</script>
<script>{_SCRIPT}</script>
</body>
</html>
"""
    # A lone surrogate, as JSON can carry one, has no UTF-8.
    replace_file(path, page.encode(errors="replace"))
    return path


def section(title: str, *parts: str) -> str:
    """A heading and what belongs under it."""
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>\n"


def paragraph(text: str) -> str:
    """A few sentences."""
    return f"<p>{escape(text)}</p>\n"


def banner(word: str, text: str, kind: str) -> str:
    """The first thing to see: a word in large type and a sentence; `kind` is good, bad or plain."""
    return f'<div class="banner {kind}"><b>{escape(word)}</b>{escape(text)}</div>\n'


def cards(items: Iterable[tuple[str, str, str]]) -> str:
    """Key numbers: (name, value, note). A long value gets a row of its own."""
    pieces = [
        f'<div class="card{" long" if len(value) > 40 else ""}">'
        f'<div class="name">{escape(name)}</div><div class="value">{escape(value)}</div>'
        f'<div class="note">{escape(note)}</div></div>'
        for name, value, note in items
    ]
    return f'<div class="cards">{"".join(pieces)}</div>\n'


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    colours: Mapping[str, str] | None = None,
) -> str:
    """A table; without `columns`, of facts. A row whose name has a colour shows it."""
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
    """Names beside their colours; unlike Plotly's own it wraps on a narrow screen."""
    items = "".join(f"<span>{_chip(c)}{escape(name)}</span>" for name, c in colours.items())
    return f'<div class="legend">{items}</div>\n'


def _chip(colour: str | None) -> str:
    return f'<span class="chip" style="background:{escape(colour)}"></span>' if colour else ""


def grid(*figures: str) -> str:
    """Figures side by side where there is room."""
    return f'<div class="grid">{"".join(figures)}</div>\n'


def figure(
    title: str,
    data: Sequence[Mapping[str, Any]],
    *,
    x: str = "",
    y: str = "",
    height: int = 320,
    **layout: Any,
) -> str:
    """A Plotly figure; `x` and `y` name the axes. Nothing when there is nothing to show."""
    if not any(len(trace["x"]) for trace in data):
        return ""
    layout = {
        "margin": {"l": 10, "r": 16, "t": 28, "b": 10},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        **layout,
        "xaxis": {"title": {"text": label(x)}, **layout.get("xaxis", {})},
        "yaxis": {"title": {"text": label(y)}, **layout.get("yaxis", {})},
    }
    # With no "<" in it, no text can close the element; the browser's parser gives it back.
    content = json.dumps(_finite({"data": data, "layout": layout})).replace("<", "\\u003c")
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<div class="plot" style="height:{height}px"></div>'
        f'<script type="application/json">{content}</script></figure>\n'
    )


def curve(name: str, points: Points, colour: str, **more: Any) -> dict[str, Any]:
    """A line through points; a value that is no number leaves a gap."""
    points = thin(points)
    # A line through one point, or between two gaps, cannot be seen.
    mode = "lines+markers" if len(points) <= 40 else "lines"
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    style = {"line": {"color": colour, "width": 2}, "mode": mode, "marker": {"size": 5}}
    return {"x": xs, "y": ys, "name": label(name), **style, **more}


def thin(points: Points) -> Points:
    """At most MOST_POINTS: of each stretch the lowest and the highest, so that no peak is lost."""
    if len(points) <= MOST_POINTS:
        return points
    size = math.ceil(2 * len(points) / MOST_POINTS)
    kept: list[tuple[float, float | None]] = []
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        values = [(y, x) for x, y in stretch if is_number(y)]
        extremes = {min(values), max(values)} if values else {(None, stretch[0][0])}
        kept += sorted(((x, y) for y, x in extremes), key=lambda point: point[0])
    return kept


def label(text: str) -> str:
    """Text for a figure: Plotly reads a little HTML, which a name must not become."""
    return escape(text, quote=False)


def is_number(value: Any) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def number(value: Any) -> str:
    """A number as people read it.

    >>> number(0.98611), number(4319.87), number(1437), number(float("nan")), number(None)
    ('0.9861', '4,320', '1,437', 'NaN', '-')
    """
    if not isinstance(value, int | float):
        return "-"
    if math.isnan(value):
        return "NaN"
    return f"{value:,.0f}" if isinstance(value, int) or 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def spoken(value: Any) -> str:
    """A value of a recipe in words."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, Mapping):
        return ", ".join(k if k == v else f"{k}: {spoken(v)}" for k, v in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(spoken(v) for v in value) or "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _finite(value: Any) -> Any:
    """The same with null for NaN and infinity, which JSON does not know."""
    if isinstance(value, Mapping):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
