"""TensorBoard: event files in the folder `tensorboard` of the run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.engine.run.loggers.choice import Line, Logger, scalars, settings_of
from lockstep.engine.run.run_folder import RunFolder

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoard:
    """Writes a curve for each number of the lines."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "tensorboard"
        self.writer: SummaryWriter | None = None

    def __call__(self, line: Line) -> None:
        """Write the numbers of a line at its step."""
        if line["kind"] == "settings":
            self._begin(line)
            return
        assert self.writer is not None
        for name, value in scalars(line).items():
            self.writer.add_scalar(name, value, line["step"])
        # A replica that is killed must not take lines from before its last checkpoint with it.
        self.writer.flush()

    def _begin(self, line: Line) -> None:
        from torch.utils.tensorboard import SummaryWriter

        resumed = self.path.exists()
        # TensorBoard then hides what earlier files hold from this step on.
        self.writer = SummaryWriter(str(self.path), purge_step=line["step"] if resumed else None)
        if not line["step"]:
            rows = "".join(f"| {name} | {value} |\n" for name, value in settings_of(line).items())
            self.writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}", 0)
        if resumed:
            # Of the lines at this step, the run keeps those from before its checkpoint.
            for old in RunFolder(self.path.parent).metrics():
                if old.get("step", 0) >= line["step"]:
                    self(old)

    def close(self, status: str) -> None:
        """Write what is still in memory."""
        if self.writer is not None:
            self.writer.close()


LOGGER = Logger(name="tensorboard", make=TensorBoard, package="tensorboard")
