"""Rank, size, device: the place of this process among the others.

The only module that reads or writes the environment.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class World:
    """One replica's place among the others."""

    rank: int = 0
    """Number of this replica, from 0."""
    size: int = 1
    """Number of replicas."""
    local_rank: int = 0
    """Number of this replica on its own machine."""
    device: str = "cpu"
    """The device that this replica computes on, as torch spells it: `cpu` or `cuda:0`."""

    @property
    def is_first(self) -> bool:
        """Whether this is the replica that speaks and writes files."""
        return self.rank == 0


def launched() -> tuple[int, int, int] | None:
    """Return (rank, size, local rank) if a launcher such as torchrun started this process."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return rank, size, int(os.environ.get("LOCAL_RANK", rank))


def watched_by() -> str | None:
    """Return the file with the settings of the probes, if this process is watched."""
    return os.environ.get("LOCKSTEP_PROBES")


def environment_of(
    rank: int, size: int, port: int, settings: Path, entry: Path, *, on_gpus: bool
) -> dict[str, str]:
    """Return the environment for one rank of a watched script; size 0 means a plain process."""
    found = without_rank(os.environ) | {
        "LOCKSTEP_PROBES": str(settings),
        "PYTHONPATH": os.pathsep.join([str(entry), *_import_folders()]),
        "PYTHONUNBUFFERED": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    if not on_gpus:
        # Without this, Accelerate starts ranks that do not find each other.
        found.setdefault("ACCELERATE_USE_CPU", "true")
    # Two threads beside a busy neighbour are slower than one.
    found.setdefault("OMP_NUM_THREADS", "1")
    if size:
        found |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
            "GROUP_RANK": "0",
            "TORCHELASTIC_RUN_ID": "lockstep",
        }
    return found


_RANK = (
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "LOCKSTEP_PROBES"),
)
"""What differs between the ranks and the runs of one script."""
_AT_IMPORT = (
    *("PYTHON", "LD_", "LANG", "LC_", "TZ", "HOME", "MALLOC_", "GLIBC_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "NPY_", "NUMPY_"),
    *("ATEN_", "ONEDNN_", "DNNL_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "CUDA_", "CUBLAS_"),
    *("NVIDIA_", "TRITON_", "ACCELERATE_", "LOCKSTEP_ASSESSED"),
)
"""Beginnings of variables that Python, NumPy or torch may read when they are loaded."""


def read_at_import(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose values count when torch is imported."""
    return {k: v for k, v in without_rank(env).items() if is_read_at_import(k)}


def is_read_at_import(name: str) -> bool:
    """Return whether Python, NumPy or torch may read this variable when they are loaded."""
    return name.startswith(_AT_IMPORT)


def without_rank(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what differs between ranks and runs."""
    return {k: v for k, v in env.items() if k not in _RANK}


def replace_environment(env: Mapping[str, str]) -> None:
    """Give this process another environment."""
    os.environ.clear()
    os.environ.update(env)


def _import_folders() -> list[str]:
    """Return the folders of PYTHONPATH as absolute paths."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [os.path.abspath(folder) for folder in given if folder]


def elsewhere() -> dict[str, str]:
    """Return this environment for a process that starts in another folder."""
    return dict(os.environ) | {"PYTHONPATH": os.pathsep.join(_import_folders())}


def confined(home: Path, mark: str, *, see_gpus: bool) -> dict[str, str]:
    """Return a small environment, with another home, for a program that is not trusted."""
    kept = ("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH")
    known = ("LC_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_")
    found = {k: v for k, v in os.environ.items() if k in kept or k.startswith(known)}
    found |= {
        "HOME": str(home),
        "TMPDIR": str(home),
        "XDG_CACHE_HOME": str(home),
        # The program can import what this process can.
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *_import_folders()]),
        # Processes that the program starts inherit the mark, and are found by it.
        "LOCKSTEP_ASSESSED": mark,
    }
    if not see_gpus:
        found["CUDA_VISIBLE_DEVICES"] = ""
    return found


def restarts() -> int:
    """Return how often the launcher has restarted this job."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def announce(world: World, port: int) -> None:
    """Set the variables that torchrun sets, for libraries that read them."""
    announce_rank(world)
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_RUN_ID="lockstep"
    )


def announce_rank(world: World) -> None:
    """Set the variables by which a program knows its rank."""
    os.environ.update(
        RANK=str(world.rank),
        WORLD_SIZE=str(world.size),
        LOCAL_RANK=str(world.local_rank),
        LOCAL_WORLD_SIZE=str(world.size),
    )


def fix_hashes() -> bool:
    """Fix the order of sets of strings in processes started from now on; return if it was not."""
    varies = "PYTHONHASHSEED" not in os.environ
    os.environ.setdefault("PYTHONHASHSEED", "0")
    return varies


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however the parent ends."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def keep_freed_memory() -> None:
    """Let this process keep memory that it frees, for the next step, instead of returning it.

    A training step frees and allocates the same large tensors again and again. glibc gives them
    back to the kernel, which clears every page before it hands them out again.
    """
    if sys.platform == "linux":
        trim_threshold, mmap_max = -1, -4
        library = ctypes.CDLL(None)
        if hasattr(library, "mallopt"):
            library.mallopt(trim_threshold, (1 << 31) - 1)
            library.mallopt(mmap_max, 0)


def writable(path: Path) -> bool:
    """Return whether this process may write `path`, or create it."""
    return os.access(path if path.exists() else path.resolve().parent, os.W_OK)


def hide_gpus() -> None:
    """Hide GPUs from this process, if it has used none yet, and from processes that it starts."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def use_cpu_only() -> None:
    """Hide GPUs from this process and its libraries, also from Accelerate."""
    hide_gpus()
    os.environ["ACCELERATE_USE_CPU"] = "true"


def gpus_here() -> int:
    """Return the number of GPUs that torch can use; import torch only if there is a driver."""
    return gpu_count() if Path("/proc/driver/nvidia").exists() else 0


def gpu_count() -> int:
    """Return the number of GPUs that torch can use, without CUDA, so that forking stays safe."""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    import torch

    return torch.cuda.device_count()


def use_deterministic_blas() -> None:
    """Fix the workspace of cuBLAS, as deterministic kernels require, before the first CUDA call."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def compile_deterministically() -> None:
    """Let torch's compiler, once it is imported, choose kernels without timing them."""
    os.environ["TORCHINDUCTOR_DETERMINISTIC"] = "1"
