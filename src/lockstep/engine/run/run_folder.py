"""A run's folder: run.json, metrics.jsonl, weights.safetensors, checkpoints/, report.html."""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.engine.run.atomic_write import replace_file
from lockstep.errors import FolderError, Interrupted, RecipeError, RunError, Untrusted


def ended_by(error: BaseException | None) -> dict[str, Any]:
    """Return how a run has ended, for run.json."""
    status = "interrupted" if isinstance(error, Interrupted) else "failed"
    untrusted = {"untrusted": True} if isinstance(error, Untrusted) else {}
    return {"status": status, "error": str(error), **untrusted}


def refuse_untrusted(folder: Path, before: dict[str, Any]) -> None:
    """Refuse to resume a run that a check has ended: its checkpoints may be wrong, too."""
    if before.get("untrusted"):
        raise FolderError(
            f"{folder} holds a run that a check has ended: {before.get('error')} Its checkpoints "
            "may be wrong, too: start a new run in another folder. If a device was at fault, take "
            '"untrusted" out of run.json to resume anyway.'
        )


class RunFolder:
    """The folder that one run writes. Only the first replica writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self._metrics = path / "metrics.jsonl"
        self.listeners: list[Callable[[dict[str, Any]], None]] = []
        """Get each line of metrics.jsonl, once it is written."""

    def claim(self) -> None:
        """Take the folder for a new run; refuse one that holds anything else."""
        if self.path.exists() and not self.path.is_dir():
            raise FolderError(f"--out {self.path} is a file. Name a folder.")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FolderError(f"--out {self.path} cannot be made: {error.strerror}.") from None
        self.lock()
        if (self.path / "run.json").exists():
            raise FolderError(
                f"--out {self.path} already holds a run. Continue it with --resume, or name "
                "another folder."
            )
        # A run that failed before it could begin leaves an empty `checkpoints`.
        others = any(path != self.checkpoints for path in self.path.iterdir())
        if others or (self.checkpoints.is_dir() and any(self.checkpoints.iterdir())):
            raise FolderError(
                f"--out {self.path} is not empty and holds no run. Name a new or an empty folder."
            )
        try:
            self.checkpoints.mkdir(exist_ok=True)
        except OSError as error:
            raise FolderError(f"--out {self.path} cannot be used: {error.strerror}.") from None

    def lock(self) -> None:
        """Keep other runs out of the folder as long as this process lives."""
        if not self.path.is_dir():
            return
        self._lock = os.open(self.path, os.O_RDONLY)
        # Data workers of a replica that was just killed hold its lock for a moment longer.
        for _ in range(20):
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(0.1)
            except OSError:
                return  # a file system without locks
        raise FolderError(f"--out {self.path} is in use by another run. Name another folder.")

    def summary(self) -> dict[str, Any]:
        """Read run.json."""
        try:
            content = json.loads((self.path / "run.json").read_text())
        except FileNotFoundError:
            raise FolderError(
                f"{self.path} holds no run (no run.json). Leave out --resume to start one."
            ) from None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise FolderError(f"{self.path / 'run.json'} is damaged: {error}.") from None
        if not isinstance(content, dict) or not isinstance(content.get("recipe"), dict):
            raise FolderError(f"{self.path / 'run.json'} is damaged: it names no recipe.")
        return content

    def write_summary(self, content: dict[str, Any]) -> None:
        """Replace run.json as a whole."""
        text = json.dumps(_finite(content), indent=2, allow_nan=False)
        replace_file(self.path / "run.json", (text + "\n").encode())

    def log(self, **record: Any) -> None:
        """Append one line to metrics.jsonl, and hand it to the listeners."""
        line = _finite(record)
        try:
            with self._metrics.open("a") as file:
                file.write(json.dumps(line, allow_nan=False) + "\n")
        except OSError as error:
            raise RunError(f"{self._metrics} cannot be written: {error.strerror}.") from error
        for listener in self.listeners:
            listener(line)

    def metrics(self) -> list[dict[str, Any]]:
        """Read all lines of metrics.jsonl; leave out a line that a crash cut short."""
        if not self._metrics.exists():
            return []
        records = []
        for line in self._metrics.read_text(errors="replace").splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(record, dict):
                records.append(record)
        return records

    def forget_after(self, step: int, most: int | None = None) -> None:
        """Drop the lines after `step`, which a resumed run logs again; keep up to `most` lines."""
        kept = [r for r in self.metrics() if r.get("step", 0) <= step][:most]
        replace_file(self._metrics, "".join(json.dumps(r) + "\n" for r in kept).encode())

    def write_weights(self, model: nn.Module) -> str:
        """Write weights.safetensors and return its SHA-256. Equal weights make equal files."""
        content = weights_file(model)
        replace_file(self.path / "weights.safetensors", content)
        return hashlib.sha256(content).hexdigest()


def new_folder(parent: Path, name: str) -> Path:
    """Make a folder for a run that was given none: its name and the time, and a number if taken."""
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in itertools.count(1):
        path = parent / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            continue
        except OSError as error:
            raise FolderError(f"{path} cannot be made: {error.strerror}.") from None
    raise AssertionError("counting never ends")


def _finite(value: Any) -> Any:
    """Replace NaN and infinity by null: JSON has neither."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def weights_file(model: nn.Module) -> bytes:
    """Return the model's weights and buffers as the content of a safetensors file."""
    from safetensors.torch import save

    # No metadata: their order in the file is not fixed.
    # Copies: safetensors refuses a tensor that shares memory with another.
    copies = {
        name: tensor.cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in state_of(model).items()
    }
    return save(copies)


def weights_sha256(model: nn.Module) -> str:
    """Return the SHA-256 that the file of these weights would have."""
    return hashlib.sha256(weights_file(model)).hexdigest()


def copy_weights(file: Path, model: nn.Module) -> None:
    """Copy the weights in a file into a model; refuse a model of another build."""
    from safetensors.torch import load_file

    found, wanted = load_file(file), state_of(model)
    shapes = {name: tuple(tensor.shape) for name, tensor in found.items()}
    for name in sorted(shapes.keys() | wanted.keys()):
        own = tuple(wanted[name].shape) if name in wanted else None
        if shapes.get(name) != own:
            raise RecipeError(
                f"the model does not fit the weights in {file}: {name} is {_shape(own)} in the "
                f"model, {_shape(shapes.get(name))} in the file. Build the model as the recipe or "
                "program of the run does."
            )
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(found[name])


def _shape(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else f"of shape {shape}"


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's weights and buffers; a tensor with several names has the first."""
    state: dict[str, Tensor] = {}
    seen = set()
    for name, tensor in model.state_dict().items():
        if not isinstance(tensor, Tensor):
            raise RecipeError(
                f"the model keeps {name} ({type(tensor).__name__}) in its state, which is no "
                "tensor: it cannot be saved. Make it a buffer, or leave it out of the state."
            )
        place = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if tensor.numel() and place in seen:
            continue
        seen.add(place)
        state[name] = tensor.detach()
    return state
