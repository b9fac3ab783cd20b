"""Logs nothing, but keeps the configuration, which scripts read back."""

from __future__ import annotations

from typing import Any

from lockstep.probes.fake_data.silent import Silent


class Config(dict[str, Any]):
    """Values by key or by attribute."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def update(self, given: Any = (), **more: Any) -> None:  # type: ignore[override]
        """Add values, also those of an argparse namespace."""
        super().update(vars(given) if hasattr(given, "__dict__") else given, **more)

    def setdefaults(self, given: Any) -> None:
        """Add the values whose keys are not set yet."""
        self.update({**given, **self})


class Run(Silent):
    """A run whose logs go nowhere."""

    dir, id, name, project = ".", "stand-in", "stand-in", "stand-in"

    @property
    def config(self) -> Config:
        """The configuration given to `init`."""
        return config

    @property
    def summary(self) -> dict[str, Any]:
        """The script's final values."""
        return summary


config, summary, run = Config(), dict[str, Any](), Run()


def init(*args: Any, config: Any = None, **kwargs: Any) -> Run:
    """Keep the configuration and return the run."""
    run.config.update(config or {})
    return run


log = watch = unwatch = finish = save = login = define_metric = alert = setup = Silent()
log_artifact = use_artifact = log_model = Silent()
Image = Table = Histogram = Artifact = Video = Audio = Html = Settings = Silent
plot = Silent()
