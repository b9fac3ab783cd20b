"""The prose of every lab: each section is shown by its notebook, and every gap is filled."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lockstep.labs.shared.catalogue import Lab, labs
from lockstep.labs.shared.text import filled, sections


@pytest.mark.parametrize("lab", labs(), ids=lambda lab: f"lab{lab.number}")
def test_a_notebook_shows_every_section_of_its_text_once(lab: Lab):
    shown = re.findall(r'page\.text\(\s*"([^"]+)"', lab.notebook.read_text())
    written = list(sections(Path(lab.folder, "text.md")))
    assert sorted(shown) == sorted(written)
    assert len(set(written)) == len(written)


def test_a_text_takes_exactly_the_values_that_it_names():
    assert filled("$x_{1}$ at @rate@", {"rate": 0.1}) == "$x_{1}$ at 0.1"
    for values in ({}, {"rate": 0.1, "batch": 32}):
        with pytest.raises(AssertionError, match="the text needs"):
            filled("at @rate@", values)
