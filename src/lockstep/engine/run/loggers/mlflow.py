"""MLflow: a run in the experiment of the recipe's or program's name.

MLflow itself decides where runs are kept: set MLFLOW_TRACKING_URI, or find them in ./mlflow.db.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from lockstep.engine.run.loggers.choice import Line, Logger, scalars, settings_of

_STATUS = {"finished": "FINISHED", "interrupted": "KILLED"}


class MLflow:
    """Writes the lines as metrics, and the settings as parameters."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.known = folder, folder / "mlflow-run"
        """The file that keeps the run's id, so that a resumed run continues the same one."""
        self.client: Any = None
        self.run = ""
        self.last: dict[str, int] = {}
        """The last step of each metric that the run had before a resume."""

    def __call__(self, line: Line) -> None:
        """Write the numbers of a line at its step."""
        if line["kind"] == "settings":
            self._begin(line)
            return
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [
            Metric(name, value, now, line["step"])
            for name, value in scalars(line).items()
            # MLflow deletes nothing: what was logged past the checkpoint stays.
            if line["step"] > self.last.get(name, -1)
        ]
        self.client.log_batch(self.run, metrics=metrics)

    def _begin(self, line: Line) -> None:
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self.client = MlflowClient()
        if self.known.exists():
            self.run = self.known.read_text().strip()
            self.client.update_run(self.run, status="RUNNING")
            for metric in self.client.get_run(self.run).data.metrics:
                history = self.client.get_metric_history(self.run, metric)
                self.last[metric] = max(one.step for one in history)
            return
        name = str(line["name"])
        found = self.client.get_experiment_by_name(name)
        place = self.client.create_experiment(name) if found is None else found.experiment_id
        self.run = self.client.create_run(place, run_name=self.folder.name).info.run_id
        self.known.write_text(self.run + "\n")
        parameters = [Param(n, str(value)) for n, value in settings_of(line).items()]
        self.client.log_batch(self.run, params=parameters)

    def close(self, status: str) -> None:
        """Mark the run as ended."""
        if self.run:
            self.client.set_terminated(self.run, _STATUS.get(status, "FAILED"))


LOGGER = Logger(name="mlflow", make=MLflow, package="mlflow")
