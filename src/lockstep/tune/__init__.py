"""Measure a recipe on this machine, and advise on batch, rate and replicas."""

from lockstep.tune.advise import check_replicas, command_of, followed, tune
from lockstep.tune.measure import Probe, optimizer_kind

__all__ = ["Probe", "check_replicas", "command_of", "followed", "optimizer_kind", "tune"]
