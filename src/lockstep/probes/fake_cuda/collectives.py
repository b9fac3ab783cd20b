"""Give scripts gloo where they ask for NCCL, and layers that work without GPUs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import device_mesh, distributed_c10d

from lockstep.probes.fake_cuda.patching import answering, cpu, given, note, without
from lockstep.probes.patching import replaces, swap

_OF_BATCH_NORM = "track_running_stats running_mean running_var eps affine weight bias"


def install() -> None:
    """Make every process group use gloo, whichever backend the script names."""
    if not dist.is_available():
        return
    homes = (dist, distributed_c10d)
    swap("init_process_group", given(_begin), *homes)
    swap("new_group new_subgroups new_subgroups_by_enumeration", given(_group), *homes)
    swap("barrier", without("device_ids"), *homes)
    for home in homes:
        # torch looks for this class if NCCL is available.
        if not hasattr(home, "ProcessGroupNCCL"):
            setattr(home, "ProcessGroupNCCL", _NCCL)  # noqa: B010
    swap("is_nccl_available", answering(lambda: True), *homes)
    swap("init_device_mesh", given(_mesh), dist, device_mesh)
    swap("__init__", given(_mesh), device_mesh.DeviceMesh)
    wrapper = nn.parallel.DistributedDataParallel
    swap("__init__", without("device_ids", "output_device"), wrapper)
    # This method only refuses SyncBatchNorm on the CPU.
    swap("_passing_sync_batchnorm_handle", answering(lambda *_: None), wrapper)
    replaces("forward", nn.SyncBatchNorm)(_synced)


class _NCCL:
    """The part of NCCL's class that scripts use: options, which gloo ignores."""

    class Options(SimpleNamespace):
        """Any options."""


def _begin(arguments: dict[str, Any]) -> None:
    if arguments.get("backend") is None:
        arguments["backend"] = "gloo"
    _group(arguments)


def _group(arguments: dict[str, Any]) -> None:
    backend = arguments.get("backend")
    if isinstance(backend, str) and "nccl" in backend.lower():
        note("nccl")
        arguments["backend"] = "gloo"
    # The options are those of NCCL.
    if isinstance(arguments.get("pg_options"), _NCCL.Options):
        del arguments["pg_options"]
    arguments.pop("device_id", None)


def _mesh(arguments: dict[str, Any]) -> None:
    if cpu(arguments["device_type"]) is not arguments["device_type"]:
        arguments["device_type"] = "cpu"
    override = arguments.get("backend_override")
    if isinstance(override, dict):
        arguments["backend_override"] = dict.fromkeys(override, "gloo")


def _synced(original: Any, self: nn.SyncBatchNorm, input: Tensor) -> Tensor:
    group = self.process_group or (dist.group.WORLD if dist.is_initialized() else None)
    if not self.training or group is None or input.device.type == "cuda":
        return original(self, input)
    # Imported here, because most scripts do not synchronise batch norm.
    from lockstep.layers.batch_norm import SyncedBatchNorm

    self._check_input_dim(input)
    self._check_non_zero_input_channels(input)
    note("SyncBatchNorm")
    momentum = self.momentum
    if self.track_running_stats and self.num_batches_tracked is not None:
        self.num_batches_tracked.add_(1)
        if momentum is None:
            # The mean over all batches so far.
            momentum = 1.0 / float(self.num_batches_tracked)

    def reduce(values: Tensor) -> Tensor:
        dist.all_reduce(values, group=group)
        return values

    # Not attributes of the module, because a process group cannot be pickled or copied.
    layer: Any = SimpleNamespace(
        training=True,
        shards=SimpleNamespace(counts=True, again=False),
        reduce=reduce,
        momentum=momentum,
        **{name: getattr(self, name) for name in _OF_BATCH_NORM.split()},
    )
    return SyncedBatchNorm.forward(layer, input)
