"""Optimizers for large batches, and Muon."""

from lockstep.scaling.optimizers.lamb import LAMB
from lockstep.scaling.optimizers.larc import LARC
from lockstep.scaling.optimizers.lars import LARS
from lockstep.scaling.optimizers.muon import Muon
from lockstep.scaling.optimizers.novograd import NovoGrad

__all__ = ["LAMB", "LARC", "LARS", "Muon", "NovoGrad"]
