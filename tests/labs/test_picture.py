"""A picture computes when a control moves, and always answers."""

from __future__ import annotations

import base64

import numpy as np
import pytest

pytest.importorskip("anywidget")

from lockstep.labs.shared.picture import Choice, Picture, Slider, Switch, ground


def drawn(**values: object) -> dict[str, object]:
    if values["rate"] == 3.0:
        raise ValueError("no such rate")
    return {"data": [{"y": [values["rate"], values["own"]]}], "layout": {}}


def picture() -> Picture:
    return Picture(
        drawn,
        rate=Slider("Rate", [1.0, 2.0, 3.0], 2.0),
        own=Switch("Own"),
        kind=Choice("Kind", ["a", "b"], "b"),
    )


def test_the_page_gets_places_and_texts() -> None:
    one = picture()
    assert one.places == {"rate": 1, "own": 0, "kind": 1}
    assert one.controls[0] == {
        "name": "rate",
        "kind": "slider",
        "label": "Rate",
        "shown": ["1", "2", "3"],
    }
    assert one.figure["data"] == [{"y": [2.0, False]}]


def test_a_moved_control_gives_a_new_figure_with_its_turn() -> None:
    one = picture()
    one.places = {"rate": 0, "own": 1, "kind": 0, "turn": 7}
    assert one.figure == {"data": [{"y": [1.0, True]}], "layout": {}, "turn": 7}


def test_a_figure_that_fails_says_so_in_the_page() -> None:
    one = picture()
    one.places = {"rate": 2, "own": 0, "kind": 0, "turn": 1}
    assert "no such rate" in one.figure["note"]
    assert one.figure["turn"] == 1


def test_a_figure_that_fails_at_first_fails_the_lab() -> None:
    with pytest.raises(ValueError, match="no such rate"):
        Picture(drawn, rate=Slider("Rate", [3.0], 3.0), own=Switch("Own"))


def test_a_ground_keeps_the_order_the_shape_and_the_colours() -> None:
    x, y, colours = (
        np.array([0.0, 1.0, 2.0]),
        np.array([5.0, 7.0]),
        [(0.0, "#ff0000"), (1.0, "#0000ff")],
    )
    found = ground(x, y, np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]), colours)
    assert (found["rows"], found["columns"]) == (2, 3)
    assert list(base64.b64decode(found["values"])) == [0, 128, 255, 255, 128, 0]
    assert (found["x"], found["y"]) == ([0.0, 2.0], [5.0, 7.0])
    assert len(found["colours"]) == 256
    assert (found["colours"][0], found["colours"][255]) == ([255, 0, 0], [0, 0, 255])
    level = ground(x[:2], y[:1], np.ones((1, 2)), colours)
    assert list(base64.b64decode(level["values"])) == [0, 0]


def test_nothing_is_loaded_from_elsewhere() -> None:
    own = picture()._esm.rsplit("function element", 1)[1]
    assert "import " not in own
    assert "http" not in own
