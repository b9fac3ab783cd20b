"""Describe the machine of a measurement."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PEERS = ("accelerate", "lightning", "pytorch-lightning", "lightning-fabric")


def facts() -> dict[str, Any]:
    """Return processor, cores, GPUs and versions."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cuda": torch.version.cuda,
        **_gpus(),
        "peers": {name: found for name in PEERS if (found := _version(name))},
    }


def name(facts: dict[str, Any], device: str) -> str:
    """Name the machine in one line, for a table.

    >>> name({"cpu": "Xeon", "cores": 2, "torch": "2.13.0", "gpus": [], "peers": {}}, "cpu")
    'Xeon, 2 cores, torch 2.13.0'
    """
    gpus = facts["gpus"]
    what = f"{facts['cpu']}, {facts['cores']} cores"
    if device == "cuda":
        what = f"{len(gpus)} x {gpus[0]}" if gpus else "a GPU without a name"
        what += f", driver {facts['driver']}, CUDA {facts['cuda']}"
    versions = [f"torch {facts['torch']}"]
    # Lightning also installs its parts under other names.
    peers = {n: v for n, v in facts["peers"].items() if facts["peers"].get("lightning") != v}
    peers |= {n: v for n, v in facts["peers"].items() if n == "lightning"}
    versions += [f"{peer} {number}" for peer, number in peers.items()]
    return ", ".join([what, *versions])


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        if names:
            return names[0].split(":", 1)[1].strip()
    return platform.processor()


def _gpus() -> dict[str, Any]:
    """Ask nvidia-smi for names and driver: a fork cannot use a GPU that torch has opened."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return {"gpus": [], "driver": None}
    rows = [line.rsplit(", ", 1) for line in done.stdout.strip().splitlines()]
    return {"gpus": [row[0] for row in rows], "driver": rows[0][-1] if rows else None}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
