"""metrics.csv: the lines of metrics.jsonl as a table. A column may appear later."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from lockstep.engine.run.atomic_write import replace_file
from lockstep.engine.run.loggers.choice import Line, Logger
from lockstep.engine.run.run_folder import RunFolder

_FIRST = ("kind", "step", "epoch", "seconds")


class Csv:
    """Keeps metrics.csv equal to metrics.jsonl, which has each line before a logger gets it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = RunFolder(folder), folder / "metrics.csv"
        self.columns = list(_FIRST)

    def __call__(self, line: Line) -> None:
        """Append a row; write the whole table again if it gets a column, and after a resume."""
        if line["kind"] == "settings" or not line.keys() <= set(self.columns):
            lines = self.folder.metrics()
            self.columns = list(dict.fromkeys([*_FIRST, *(n for one in lines for n in one)]))
            replace_file(self.path, self._text(lines, header=True).encode())
        else:
            with self.path.open("a", newline="") as file:
                file.write(self._text([line]))

    def _text(self, lines: Sequence[Line], *, header: bool = False) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        if header:
            writer.writeheader()
        writer.writerows(lines)
        return text.getvalue()

    def close(self, status: str) -> None:
        """Leave the file as it is: it is whole after each line."""


LOGGER = Logger(name="csv", make=Csv)
