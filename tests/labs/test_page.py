"""What a page does when something cannot be measured here."""

from __future__ import annotations

import marimo as mo
import pytest

from lockstep.errors import RunError
from lockstep.labs.shared.page import Report, _shown


def fails(report: Report) -> None:
    report(0.5, "half")
    raise RunError("two processes did not start")


def test_a_failed_measurement_stops_the_cell_and_says_why():
    with pytest.raises(mo.MarimoStopError) as stopped:
        _shown(fails)
    assert "two processes did not start" in stopped.value.output.text
    assert "Press the button to try again" in stopped.value.output.text
