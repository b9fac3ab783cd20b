"""All output goes through here: tables and progress for people, lines for logs, JSON for programs.

With --json, standard output carries one JSON document and nothing else; the rest goes to stderr.
Rich follows NO_COLOR. Only the first replica prints.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import rich.console
    import rich.progress


class Console:
    """Prints lines, tables, warnings, errors and JSON."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json, self.quiet = as_json, quiet
        self._rich: rich.console.Console | None = None

    @property
    def rich(self) -> rich.console.Console:
        """Rich's console, imported when it is first used."""
        if self._rich is None:
            from rich.console import Console as RichConsole

            self._rich = RichConsole(
                stderr=self.as_json, quiet=self.quiet, highlight=False, soft_wrap=True
            )
        return self._rich

    def say(self, text: str) -> None:
        """Print a line."""
        self.rich.print(text, markup=False)

    def warn(self, text: str) -> None:
        """Print a warning."""
        self._labelled("yellow", "warning: ", text)

    def error(self, text: str) -> None:
        """Print an error on stderr."""
        if not self.as_json:
            from rich.console import Console as RichConsole

            self._rich = RichConsole(stderr=True, highlight=False, soft_wrap=True)
        # A killed replica leaves its progress bar behind, and the cursor hidden.
        self.rich.show_cursor(True)
        self._labelled("bold red", "error: ", text)

    def _labelled(self, style: str, label: str, text: str) -> None:
        from rich.text import Text

        self.rich.print(Text(label, style=style) + Text(text, style="default"))

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table; the first column names the rows."""
        from rich import box
        from rich.table import Table

        table = Table(
            title=title,
            box=box.ROUNDED,
            title_justify="left",
            title_style="bold",
            show_header=any(columns),
        )
        for number, column in enumerate(columns):
            table.add_column(column, justify="right" if number else "left")
        for row in rows:
            table.add_row(*row)
        self.rich.print(table)

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines on standard output without wrapping them."""
        sys.stdout.flush()
        for line in lines:
            sys.stdout.write(line + "\n")

    def emit(self, document: Any) -> None:
        """Print a JSON document on standard output."""
        sys.stdout.flush()
        content = (json.dumps(document, indent=2) + "\n").encode()
        with os.fdopen(os.dup(1 if _reserved is None else _reserved), "wb") as output:
            output.write(content)


_reserved: int | None = None


@contextmanager
def reserved_output(wanted: bool) -> Iterator[None]:
    """Keep standard output for `emit`, and send all other prints to stderr."""
    global _reserved
    if not wanted:
        yield
        return
    sys.stdout.flush()
    _reserved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(_reserved, 1)
        os.close(_reserved)
        _reserved = None


class Progress:
    """Progress of a run. This class is silent: every replica but the first uses it."""

    def begin(self, steps: int, done: int, epochs: int) -> None:
        """Start at step `done` of `steps`; `epochs` is 0 if their number is unknown."""

    def step(self, done: int) -> None:
        """Note that `done` steps are complete."""

    def record(self, record: dict[str, Any]) -> None:
        """Show a record of metrics.jsonl."""

    def download(self, done: int, total: int | None) -> None:
        """Note that `done` bytes of a file have arrived."""

    def say(self, text: str) -> None:
        """Print a line."""

    def warn(self, text: str) -> None:
        """Print a warning."""

    def end(self) -> None:
        """Finish."""


SILENCE = 15.0
"""Longest time in seconds without a line of progress if there is no terminal."""


class LiveProgress(Progress):
    """A progress bar with an estimate on a terminal; a line per epoch elsewhere.

    Rich refreshes the bar in a thread. A process that forks must have no other thread, so it asks
    for a bar that is `still`: only steps refresh it.
    """

    def __init__(self, console: Console, title: str, *, still: bool = False) -> None:
        self.console, self.title, self.still = console, title, still
        self._bar: rich.progress.Progress | None = None
        self._task: Any = None
        self._started = self._spoke = 0.0
        self._first, self._steps, self._epochs = 0, 1, 1
        self._train: list[dict[str, Any]] = []
        self._downloaded = 0

    def begin(self, steps: int, done: int, epochs: int) -> None:
        """Show the bar if there is a terminal."""
        self._started, self._first, self._steps = time.perf_counter(), done, steps
        self._spoke = self._started
        self._epochs = epochs
        if self.console.rich.is_terminal:
            from rich import progress

            self._bar = progress.Progress(
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TextColumn("{task.fields[facts]}"),
                progress.TimeRemainingColumn(),
                console=self.console.rich,
                transient=True,
                auto_refresh=not self.still,
            )
            self._task = self._bar.add_task(self.title, total=steps, completed=done, facts="")
            self._bar.start()

    def step(self, done: int) -> None:
        """Move the bar; without a bar, print a line after `SILENCE` seconds."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, refresh=self.still)
        elif time.perf_counter() - self._spoke > SILENCE:
            left = self._left(done)
            self._say(f"{self.title}  step {done:,}/{self._steps:,}  {duration(left)} left")

    def record(self, record: dict[str, Any]) -> None:
        """Show the newest loss in the bar; print a line after each evaluation."""
        if record["kind"] == "train":
            self._train.append(record)
            if self._bar is not None:
                self._bar.update(self._task, facts=f"loss {record['loss']:.4f}")
            return
        done = record["step"]
        left = self._left(done)
        metrics = {n: v for n, v in record.items() if n not in ("kind", "step", "epoch", "seconds")}
        of = f"/{self._epochs}" if self._epochs else ""
        parts = [f"{self.title}  epoch {round(record['epoch'], 2):g}{of}"]
        rates = [r["samples_per_second"] for r in self._train if r["samples_per_second"]]
        if self._train:
            parts.append(f"loss {fmean(r['loss'] for r in self._train):.4f}")
        parts += [f"{name.replace('_', ' ')} {value:.4f}" for name, value in metrics.items()]
        if rates:
            parts.append(f"{median(rates):,.0f} samples/s")
        self._train.clear()
        parts.append(
            f"{duration(left)} left" if done < self._steps else duration(record["seconds"])
        )
        self._say("  ".join(parts))

    def _left(self, done: int) -> float:
        spent = time.perf_counter() - self._started
        return spent / max(1, done - self._first) * (self._steps - done)

    def _say(self, text: str) -> None:
        self._spoke = time.perf_counter()
        self.console.say(text)

    def download(self, done: int, total: int | None) -> None:
        """Print a line for every tenth of the file, or every 10 MB if its size is unknown."""
        tenth = total // 10 if total else 10_000_000
        if done // max(1, tenth) > self._downloaded // max(1, tenth) or done < self._downloaded:
            of = f" of {total / 1e6:.1f}" if total else ""
            self.console.say(f"downloading: {done / 1e6:.1f}{of} MB")
        self._downloaded = done

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.say(text)

    def warn(self, text: str) -> None:
        """Print a warning."""
        self.console.warn(text)

    def end(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def duration(seconds: float) -> str:
    """Format a time for people.

    >>> duration(0.0123), duration(4.56), duration(75), duration(7500)
    ('12 ms', '4.6 s', '1 min 15 s', '2 h 05 min')
    """
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"
    return f"{int(seconds) // 3600} h {int(seconds) % 3600 // 60:02d} min"
