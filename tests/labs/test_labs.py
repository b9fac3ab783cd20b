"""Every lab runs: headless, every cell; in a browser, wide and narrow, light and dark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from labs.browser import Watched, browsing, needs_browser, served
from lockstep.labs.shared.catalogue import Lab, labs

pytestmark = pytest.mark.slow
NUMBERS = [lab.number for lab in labs()]
BY_NUMBER = {lab.number: lab for lab in labs()}
SCREENS = {"desktop": (1280, "light"), "phone": (390, "dark")}


@pytest.mark.parametrize("number", NUMBERS)
def test_a_lab_runs_every_cell_without_a_browser(number: int, learner: Any) -> None:
    lab: Lab = BY_NUMBER[number]
    found = learner.has_run(number)
    done = [event["what"] for event in found["events"]]
    assert [name for name in lab.tasks if f"task {name}" not in done] == []
    assert any(what.startswith("measured ") for what in done)
    assert "5 questions" in [event["found"] for event in found["events"]]


@needs_browser
@pytest.mark.parametrize("number", NUMBERS)
def test_a_lab_looks_right_and_its_sliders_move_the_picture(
    number: int, learner: Any, tmp_path: Path
) -> None:
    learner.has_run(number)
    with served(number, learner.home) as address, browsing() as browser:
        for name, (width, scheme) in SCREENS.items():
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme
            )
            page = Watched(context.new_page())
            page.open(address, number)
            assert page.page.evaluate("overflowing()") == []
            assert page.page.get_by_text("This picture failed").count() == 0
            assert page.page.locator("[data-testid=error-output], .marimo-error").count() == 0
            page.page.screenshot(path=tmp_path / f"lab{number}-{name}.png")
            assert is_dark(page) == (scheme == "dark")
            if name == "desktop":
                every_slider_moves_its_picture(page)
                playing_leaves_what_lies_behind(page)
                a_turned_view_stays(page)
            assert page.errors == []
            assert page.outside == []
            context.close()


def is_dark(page: Watched) -> bool:
    """Whether the ground is darker than the text, in the page and in its pictures."""
    dark = page.page.evaluate(
        """() => {
          const light = colour => {
            const context = document.createElement("canvas").getContext("2d");
            context.fillStyle = colour;
            context.fillRect(0, 0, 1, 1);
            return Math.max(...context.getImageData(0, 0, 1, 1).data.slice(0, 3));
          };
          const ground = light(getComputedStyle(document.body).backgroundColor);
          return pictures(document).map(one => ground < light(getComputedStyle(one).color));
        }"""
    )
    assert len(set(dark)) == 1
    return bool(dark[0])


def every_slider_moves_its_picture(page: Watched) -> None:
    """Each control is moved by a key; the figure that Python sends back is another one."""
    for place in range(len(page.turns())):
        picture = page.page.locator(".picture").nth(place)
        for control in range(picture.locator(".control input, .control select").count()):
            moved = picture.locator(".control input, .control select").nth(control)
            before = _state(page, place)
            _move(moved)
            page.page.wait_for_function(
                "([place, turn]) => pictures(document)[place].dataset.turn !== turn",
                arg=[place, before["turn"]],
            )
            assert _state(page, place)["figure"] != before["figure"], (place, control)


def playing_leaves_what_lies_behind(page: Watched) -> None:
    """Where there is something to play, the lines move, and the images under them stay."""
    for place in range(len(page.turns())):
        picture = page.page.locator(".picture").nth(place)
        button = picture.locator(".player button")
        if not button.is_visible():
            continue
        images = "one => one.querySelectorAll('image').length"
        before = picture.evaluate(images)
        button.click()
        # A figure is shown whole, so a play begins by going back.
        for reached in ("at < last", "at > 5"):
            page.page.wait_for_function(
                f"""place => {{
                  const seek = pictures(document)[place].querySelector(".player input");
                  const at = Number(seek.value), last = Number(seek.max);
                  return {reached};
                }}""",
                arg=place,
            )
        assert picture.evaluate(images) == before
        assert "NaN" not in picture.inner_html()


def a_turned_view_stays(page: Watched) -> None:
    """What is drawn in three dimensions turns under the mouse, and sliders leave it so."""
    views = """() => pictures(document).map(one => {
      const eye = one.querySelector(".plot")._fullLayout.scene?.camera.eye;
      return eye ? [Math.atan2(eye.y, eye.x), Math.hypot(eye.x, eye.y, eye.z)] : null;
    })"""
    for place, before in enumerate(page.page.evaluate(views)):
        if before is None:
            continue
        picture = page.page.locator(".picture").nth(place)
        picture.scroll_into_view_if_needed()
        box = picture.locator(".plot").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.page.mouse.move(x, y)
        page.page.mouse.down()
        page.page.mouse.move(x + 80, y, steps=5)
        page.page.mouse.up()
        turn = _state(page, place)["turn"]
        _move(picture.locator("input[type=range]").first)
        page.page.wait_for_function(
            "([place, turn]) => pictures(document)[place].dataset.turn !== turn",
            arg=[place, turn],
        )
        turned = page.page.evaluate(views)[place]
        assert turned[0] != pytest.approx(before[0], abs=0.1)
        assert turned[1] == pytest.approx(before[1], rel=0.01)


def _move(control: Any) -> None:
    kind = control.evaluate("one => one.type")
    if kind == "checkbox":
        control.click()
    elif kind == "range":
        last = control.evaluate("one => one.value === one.max")
        control.press("ArrowLeft" if last else "ArrowRight")
    else:
        at = int(control.evaluate("one => one.value"))
        count = control.locator("option").count()
        control.select_option(str((at + 1) % count))


def _state(page: Watched, place: int) -> dict[str, Any]:
    return page.page.evaluate(
        """place => {
          const one = pictures(document)[place], plot = one.querySelector(".plot");
          const {shapes, annotations, images} = plot.layout;
          const figure = [plot.data, shapes, annotations, images,
            one.querySelector(".note").textContent];
          return {turn: one.dataset.turn, figure: JSON.stringify(figure)};
        }""",
        place,
    )


@needs_browser
def test_a_learner_does_lab_1_and_it_is_remembered(learner: Any) -> None:
    learner.has_run(1)
    with served(1, learner.home) as address, browsing() as browser:
        page = Watched(browser.new_page())
        page.open(address, 1)
        editor = page.page.locator(".cm-content").nth(1)
        check = page.page.get_by_role("button", name="Check").nth(1)
        check.click()
        page.page.get_by_text("yours drops the last two").wait_for()
        editor.click()
        page.page.keyboard.press("Control+a")
        page.page.keyboard.insert_text(
            "def batches(order, size):\n"
            "    return [order[at : at + size] for at in range(0, len(order), size)]"
        )
        check.click()
        page.page.get_by_text("Passed.").wait_for()
        for question in range(5):
            page.page.get_by_role("radiogroup").nth(question).get_by_role("radio").first.click()
        page.page.get_by_role("button", name="Answer", exact=True).click()
        page.page.get_by_text(" of 5").last.wait_for()
        page.open(address, 1)
        page.page.get_by_text("✓ task batches").wait_for()
        assert page.page.get_by_text("○ task convergence").count() == 1
        assert page.errors == []
    listed = json.loads(learner.lockstep("lab", "--json").stdout)
    assert listed[1]["tasks"] == {"convergence": False, "batches": True}
    assert listed[1]["quiz"]["of"] == 5


@needs_browser
def test_without_the_token_nothing_is_served(learner: Any) -> None:
    with served(1, learner.home) as address, browsing() as browser:
        page = browser.new_page()
        page.goto(address.split("?")[0])
        assert "login" in page.url
