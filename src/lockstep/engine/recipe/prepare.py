"""Configure torch, and load and check a recipe's data and model, before a replica is built."""

from __future__ import annotations

import inspect
import platform
import random
import warnings
from typing import Any

import numpy
import torch
import torch.utils.deterministic
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from lockstep.console import Progress
from lockstep.data import Data, Resident
from lockstep.data.batches import check_indexed, check_pair
from lockstep.engine.recipe.recipe import Precision, Recipe, build
from lockstep.errors import DataError, RecipeError
from lockstep.layers.batch_norm import ShardBatchNorm, SyncedBatchNorm
from lockstep.processes.lazy_dynamo import use_deterministic_algorithms
from lockstep.world import keep_freed_memory, use_deterministic_blas


def seed_all(number: int) -> None:
    """Seed every generator that a recipe's functions may draw from."""
    random.seed(number)
    numpy.random.seed(number & 0xFFFFFFFF)
    torch.manual_seed(number)


def some(names: list[str]) -> str:
    """Return the first few names, and how many more there are.

    >>> some(["a", "b", "c", "d", "e", "f"])
    'a, b, c, d and 2 more'
    """
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def check_model(module: nn.Module) -> None:
    """Refuse a model that cannot be trained, or whose batch norm cannot be kept per shard."""
    if not any(p.requires_grad for p in module.parameters()):
        raise RecipeError("the model has no parameter that requires a gradient: nothing to train.")
    check_layers(module)


def check_layers(module: nn.Module) -> None:
    """Refuse layers whose statistics or gradients lockstep cannot add up over replicas."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.dtype == torch.complex128:
            raise RecipeError(
                f"{name} is of type complex128, which safetensors files cannot hold. Use complex64 "
                "(torch.cfloat), or keep the two parts as float64 and join them in forward "
                "(torch.view_as_complex)."
            )
    known = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, ShardBatchNorm, SyncedBatchNorm)
    for name, layer in module.named_modules():
        odd = isinstance(layer, _BatchNorm) and type(layer) not in known
        if odd and getattr(layer, "track_running_stats", True):
            raise RecipeError(
                f"{name or 'the model'} is a {type(layer).__name__}: lockstep keeps statistics per "
                "shard only for torch's own nn.BatchNorm1d, 2d and 3d. Use one of them (and "
                "--batch-norm sync for statistics over the global batch)."
            )
        if getattr(layer, "sparse", False) is True:
            raise RecipeError(
                f"{name or 'the model'} ({type(layer).__name__}) has sparse gradients, which "
                "lockstep does not add up over replicas. Build it with sparse=False."
            )
        if isinstance(layer, nn.parallel.DistributedDataParallel | nn.DataParallel):
            raise RecipeError(
                f"{name or 'the model'} is wrapped in {type(layer).__name__}. Pass the plain "
                "model: lockstep adds up the gradients of all replicas."
            )


def in_bfloat16(module: nn.Module) -> None:
    """Keep weights and buffers in bfloat16, except those of batch norm, which are statistics."""
    for layer in module.modules():
        if isinstance(layer, _BatchNorm):
            continue
        for p in layer.parameters(recurse=False):
            if p.is_floating_point():
                p.data = p.data.to(torch.bfloat16)
        for name, buffer in layer.named_buffers(recurse=False):
            if buffer.is_floating_point():
                setattr(layer, name, buffer.to(torch.bfloat16))


def load_data(recipe: Recipe, progress: Progress) -> Data:
    """Load and check the recipe's data; pass `progress` to a function that takes it."""
    listens = "progress" in inspect.signature(recipe.data).parameters
    given = {"progress": progress.download} if listens else {}
    data = build(f"the data of {recipe.name}", recipe.data, **given)
    if not isinstance(data, Data):
        raise RecipeError(
            f"the data of {recipe.name} is {type(data).__name__}; its function must return "
            "lockstep.Data(train=..., test=...)."
        )
    for samples in (data.train, data.test):
        check_indexed(samples)
    if not len(data.train) or not len(data.test):
        raise DataError(f"the data of {recipe.name} have no training or no test samples.")
    for samples in (data.train, data.test):
        if not isinstance(samples, Resident) and not recipe.is_general:
            # Here and not in a worker, from which the error would arrive wrapped and late.
            check_pair(build(f"the first sample of {recipe.name}", samples.__getitem__, 0))
    return data


def configure_torch(
    device: torch.device, *, threads: int, precision: Precision, exact: bool
) -> None:
    """Set threads, precision and determinism of torch."""
    torch.set_num_threads(threads)
    if device.type == "cpu":
        keep_freed_memory()
    # DDP warns of weights with one input channel, where both layouts are the same memory.
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
    # The recipe decides whether to use TF32, not the compiler.
    warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
    tf32 = precision is Precision.TF32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    if exact:
        use_deterministic_blas()
        use_deterministic_algorithms()
        # Deterministic without it: nothing here reads memory before it is written.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.deterministic = exact
    torch.backends.cudnn.benchmark = device.type == "cuda" and not exact


def machine_facts(threads: int, device: torch.device) -> dict[str, Any]:
    """Return what the last bits of a run depend on besides the recipe."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": gpu or "cpu",
        "threads": threads,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
