"""NVIDIA's apex without its kernels: its parts that torch has, too, under apex's names."""

from lockstep.probes.fake_data.packages.apex import amp as amp
from lockstep.probes.fake_data.packages.apex import normalization as normalization
from lockstep.probes.fake_data.packages.apex import optimizers as optimizers
from lockstep.probes.fake_data.packages.apex import parallel as parallel
