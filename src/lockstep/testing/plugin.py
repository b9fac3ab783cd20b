"""The pytest plugin: a fixture, which imports the rest of lockstep at its first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockstep.testing.same import SameOn


@pytest.fixture
def same_on() -> Callable[..., SameOn]:
    """Run a function or script on 1, 2, ... replicas, and compare: `same_on(1, 2)(train)`."""
    from lockstep.testing import same_on as found

    return found
