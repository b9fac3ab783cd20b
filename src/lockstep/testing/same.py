"""`same_on`: what a test calls. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.errors import UsageError

if TYPE_CHECKING:
    from lockstep.convert.verify import Comparison
    from lockstep.doctor import Finding

MOST = 64
"""The most replicas of one machine."""


class NotSame(AssertionError):
    """The result depends on the number of replicas, or a replica failed."""

    def __init__(
        self,
        message: str,
        comparison: Comparison | None = None,
        findings: tuple[Finding, ...] = (),
    ) -> None:
        super().__init__(message)
        self.comparison = comparison
        """The first number of replicas that differs: step, parameter, difference and bound."""
        self.findings = findings
        """What the doctor found in that run."""


def same_on(
    *replicas: int, exact: bool | None = None, steps: int | None = 12, timeout: float = 60.0
) -> SameOn:
    """Return a check that runs a function or script on each number of replicas, and compares.

    Call it with a function and its arguments, `same_on(1, 2, 4)(train)`, or with a script and its
    arguments, `same_on(1, 2)("train.py", "--epochs", "1")`. Above a test, `@same_on(1, 2)` runs
    the test function itself, and compares what it returns.

    Args:
        replicas: 1, and at least one other number. All runs are compared with that on 1.
        exact: Demand equal bits. By default they are demanded of a `lockstep.Loop` in exact mode;
            of everything else, that rounding explains the difference.
        steps: Optimizer steps after which a script is stopped; None lets it run to its end. The
            first epoch gets two thirds of them. Functions always run to their end.
        timeout: Seconds without progress after which a run has failed.
    """
    given = f"same_on({', '.join(map(repr, replicas))})"
    if any(not isinstance(number, int) or isinstance(number, bool) for number in replicas):
        raise UsageError(
            f"{given}: give numbers of replicas first, and then what to run: same_on(1, 2)(train)."
        )
    if not replicas or any(not 1 <= number <= MOST for number in replicas):
        raise UsageError(f"{given}: give numbers of replicas from 1 to {MOST}, as same_on(1, 2).")
    others = sorted(set(replicas) - {1})
    if 1 not in replicas or not others:
        shown = ", ".join(map(str, [1, *(others or [2])]))
        raise UsageError(f"{given} compares with the run on 1 replica. Write same_on({shown}).")
    if steps is not None and steps < 1:
        raise UsageError(f"steps={steps}: give 1 or more, or None to run the script to its end.")
    if not timeout > 0:
        raise UsageError(f"timeout={timeout:g}: give a number of seconds above 0.")
    return SameOn(tuple(others), exact, steps, timeout)


class SameOn:
    """A check that `same_on` returns."""

    def __init__(
        self, others: tuple[int, ...], exact: bool | None, steps: int | None, timeout: float
    ) -> None:
        self.others = others
        """The numbers of replicas that are compared with 1."""
        self.exact, self.steps, self.timeout = exact, steps, timeout

    def __call__(
        self, what: Callable[..., Any] | str | PathLike[str], *args: Any, **kwargs: Any
    ) -> Any:
        """Run it and compare; raise `NotSame` if the result depends on the number of replicas.

        A function whose name begins with `test` is not run at once: the check returns a test that
        pytest runs.
        """
        __tracebackhide__ = True  # pytest shows the line of the test, not ours
        if callable(what):
            if getattr(what, "__name__", "").startswith("test") and not args and not kwargs:
                return self._as_test(what)
            self._function(what, *args, **kwargs)
            return None
        if kwargs:
            raise UsageError(f"{what}: a script takes arguments as on a command line, as strings.")
        self._script(Path(what), tuple(map(str, args)))
        return None

    def _as_test(self, function: Callable[..., Any]) -> Callable[..., None]:
        # pytest reads the arguments behind `wraps`, and gives their fixtures by name.
        @wraps(function)
        def test(*args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            self._function(function, *args, **kwargs)

        return test

    def _function(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        from lockstep.testing.functions import check

        check(self, function, args, kwargs)

    def _script(self, path: Path, arguments: tuple[str, ...]) -> None:
        if path.suffix != ".py" or not path.is_file():
            why = "is no .py file" if path.is_file() else f"does not exist in {Path.cwd()}"
            raise UsageError(f'{path} {why}. Write same_on(1, 2)("train.py", "--epochs", "1").')
        __tracebackhide__ = True
        from lockstep.testing.scripts import check

        check(self, path, arguments)
