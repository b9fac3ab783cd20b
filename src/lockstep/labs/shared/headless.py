"""Run a lab without a browser: every cell, every measurement, every answer."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

from lockstep.errors import RunError
from lockstep.labs.shared.catalogue import Lab


def run(lab: Lab) -> dict[str, Any]:
    """Run all cells of a lab's notebook, and return a report with times."""
    began = time.perf_counter()
    module = import_module(f"lockstep.labs.{lab.notebook.parent.name}.notebook")
    try:
        outputs, names = module.app.run()
    except Exception as error:
        cause = error.__cause__ or error
        raise RunError(f"lab {lab.number} failed: {type(cause).__name__}: {cause}") from error
    events = [vars(event) for event in names["page"].events]
    return {
        "lab": lab.number,
        "title": lab.title,
        "cells": len(outputs),
        "seconds": time.perf_counter() - began,
        "events": events,
    }
