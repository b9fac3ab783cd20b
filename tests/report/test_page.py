import json
import re
import sys

import pytest
from plotly.offline import get_plotlyjs

from lockstep.report import page


def figures(html):
    """What the page's script will give to Plotly."""
    found = re.findall(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)
    return [json.loads(text, parse_constant=pytest.fail) for text in found]


def test_a_page_loads_nothing_from_elsewhere(tmp_path):
    picture = page.figure("Loss", [page.curve("loss", [(0, 1)], "red")])
    html = page.write_page(tmp_path / "p.html", "A page", picture).read_text()
    assert "Plotly.react" in html
    assert len(html) > 1e6, "Plotly's script is in the page"
    own = html.replace(get_plotlyjs(), "")
    assert not re.search(r"https?://|\b(?:src|href)\s*=|@import|url\(", own)
    assert not re.search(r"<(?:script|link|img|iframe)\b[^>]*\s(?:src|href)=[\"']http", html)
    assert "default-src 'none'" in html


def test_a_page_without_a_figure_runs_no_script_and_needs_no_plotly(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    text = page.paragraph('<div class="plot"')
    html = page.write_page(tmp_path / "p.html", "A page", text).read_text()
    assert len(html) < 10_000
    assert "<script" not in html
    assert "script-src" not in html


def test_a_page_replaces_the_old_one_and_leaves_no_other_file(tmp_path):
    path = tmp_path / "p.html"
    path.write_text("old")
    assert page.write_page(path, "new") == path
    assert "<title>new</title>" in path.read_text()
    assert list(tmp_path.iterdir()) == [path]


def test_a_page_can_carry_text_that_utf_8_cannot(tmp_path):
    page.write_page(tmp_path / "p.html", "lone \ud800 surrogate")
    assert "<title>lone ? surrogate</title>" in (tmp_path / "p.html").read_text()


HOSTILE = "</script><script>alert(1)</script>"


@pytest.mark.parametrize(
    "html",
    [
        page.section(HOSTILE),
        page.paragraph(HOSTILE),
        page.banner(HOSTILE, HOSTILE, "good"),
        page.cards([(HOSTILE, HOSTILE, HOSTILE)]),
        page.table([HOSTILE], [(HOSTILE, HOSTILE)]),
        page.item("bad", HOSTILE, HOSTILE, HOSTILE, [(HOSTILE, HOSTILE)]),
        page.verbatim([HOSTILE]),
        page.verbatim([HOSTILE], lambda line: True),
        page.legend({HOSTILE: "red"}),
        page.figure(HOSTILE, [page.curve(HOSTILE, [(0, 1)], "red")], x=HOSTILE),
        page.figure("", [page.bars(HOSTILE, [HOSTILE], [1.0], "red")]),
    ],
)
def test_text_stays_text(html):
    assert "<script>" not in html
    assert html.count("</script>") == html.count('<script type="application/json">')


def test_names_in_a_figure_are_not_read_as_html_by_plotly():
    [found] = figures(page.figure("", [page.curve("<b>a & b</b>", [(0, 1)], "red")]))
    assert found["data"][0]["name"] == "&lt;b&gt;a &amp; b&lt;/b&gt;"


def test_a_figure_holds_null_where_a_value_is_no_number():
    points = [(0, 1.0), (1, float("nan")), (2, float("inf")), (3, None), (4, 2.0)]
    [found] = figures(page.figure("", [page.curve("loss", points, "red")]))
    assert found["data"][0]["y"] == [1.0, None, None, None, 2.0]


def test_a_figure_without_points_is_left_out():
    assert page.figure("Loss", [page.curve("loss", [], "red")]) == ""


def test_a_curve_without_points_is_left_out_of_a_figure_with_others():
    data = [page.curve("a", [], "red"), page.curve("b", [(0, 1)], "red")]
    [found] = figures(page.figure("", data))
    assert [trace["name"] for trace in found["data"]] == ["b"]
    assert not found["layout"]["showlegend"]


def test_a_single_point_is_drawn_as_a_dot():
    assert "markers" in page.curve("a", [(0, 1)], "red")["mode"]


def test_short_curves_are_not_thinned():
    points = [(i, i % 7) for i in range(page.MOST_POINTS)]
    assert page.thin(points) == points


@pytest.mark.parametrize("length", [page.MOST_POINTS + 1, 3333, 100_000])
def test_long_curves_are_thinned_and_keep_order_and_peaks(length):
    points = [(i, 0.001 * (i % 10)) for i in range(length)]
    points[777], points[1234] = (777, 99.0), (1234, -99.0)
    kept = page.thin(points)
    assert len(kept) <= page.MOST_POINTS
    assert {(777, 99.0), (1234, -99.0)} <= set(kept)
    assert kept == sorted(kept)
    assert set(kept) <= set(points)


def test_a_stretch_of_gaps_stays_a_gap():
    kept = page.thin([(i, None if i < 5000 else 1.0) for i in range(10_000)])
    assert kept[0] == (0, None)
    assert kept[-1][1] == 1.0


def test_a_long_value_gets_a_wide_card():
    assert "card long" in page.cards([("sha", "f" * 64, "")])
    assert "card long" not in page.cards([("time", "3 s", "")])


@pytest.mark.parametrize("value", [None, "x", float("nan"), float("inf")])
def test_other_values_are_no_finite_numbers(value):
    assert not page.is_number(value)


def test_the_target_is_a_line_as_long_as_the_curve():
    line = page.curve("accuracy", [(3, 0.5), (9, 0.9)], "red")
    [level] = page.level(line, 0.97)
    assert (level["x"], level["y"]) == ([3, 9], [0.97, 0.97])
    assert level["line"]["dash"] == "dash"
    assert page.level(line, None) == page.level(page.curve("", [], "red"), 0.97) == []
