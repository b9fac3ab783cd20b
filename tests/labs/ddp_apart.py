"""Functions that are called in processes of their own."""

from __future__ import annotations

import os
import time

from lockstep.errors import UsageError


def sleep(report) -> dict:
    time.sleep(600)
    return {}


def refuse(report) -> dict:
    raise UsageError("this is not so")


def die(report) -> dict:
    os._exit(3)


def answer(number: int, report) -> dict:
    report(0.5, "half")
    return {"number": number + 1}
