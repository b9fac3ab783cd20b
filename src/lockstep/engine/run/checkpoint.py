"""Checkpoints: one file each, written in the background and read only if it is whole.

A file holds every tensor and, in its metadata, everything else and a SHA-256 of both. It appears
under its name only when it is complete.
"""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lockstep.engine.run.atomic_write import replace_file
from lockstep.errors import CheckpointError


class Checkpoint(NamedTuple):
    """A run's state after some step."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]
    """Step, seconds, recipe, machine, and the optimizer's numbers."""


class Checkpoints:
    """The checkpoints of one run, newest last."""

    def __init__(self, folder: Path, keep: int = 3) -> None:
        self.folder, self.keep = folder, keep
        self._writer = ThreadPoolExecutor(max_workers=1)
        self._pending: Future[None] | None = None
        self._stream: torch.cuda.Stream | None = None

    def save(self, checkpoint: Checkpoint) -> None:
        """Copy the state now and write it in the background; wait for the checkpoint before it."""
        self.finish()
        ready = None
        if torch.cuda.is_initialized():
            # Another stream: torch marks the end of a pinned copy's use on the stream that filled
            # it, whenever the writer drops it, and the training's may be recording then.
            self._stream = self._stream or torch.cuda.Stream()
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                copies = _host_copies(checkpoint.tensors)
                ready = self._stream.record_event()
            torch.cuda.current_stream().wait_stream(self._stream)
        else:
            copies = _host_copies(checkpoint.tensors)
        # As text, now: the training goes on to change lists and dicts that the facts hold.
        text = json.dumps(checkpoint.facts, sort_keys=True)
        step = checkpoint.facts["step"]
        self._pending = self._writer.submit(self._write, copies, step, text, ready)

    def finish(self) -> None:
        """Wait until everything is on disk; raise any error of the writer."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def files(self) -> list[Path]:
        """Return all checkpoint files, newest last."""
        return sorted(self.folder.glob("step-*.safetensors"))

    def newest(self) -> tuple[Checkpoint, list[str]]:
        """Return the newest whole checkpoint, and a warning for each newer file that is damaged."""
        warnings: list[str] = []
        for path in reversed(self.files()):
            try:
                return read(path), warnings
            except CheckpointError as error:
                warnings.append(f"{error} Using the one before it.")
        raise CheckpointError(
            f"No checkpoint in {self.folder} can be used. "
            + (" ".join(warnings) or "There is none.")
            + " Start a new run in another folder."
        )

    def drop_after(self, step: int) -> None:
        """Rename checkpoints past `step`, which are damaged, and delete incomplete files."""
        for path in self.files():
            if int(path.stem.removeprefix("step-")) > step:
                path.replace(path.with_suffix(".damaged"))
        for path in self.folder.glob(".step-*"):
            path.unlink(missing_ok=True)

    def _write(
        self, tensors: dict[str, Tensor], step: int, text: str, ready: torch.cuda.Event | None
    ) -> None:
        from safetensors.torch import save

        if ready is not None:
            ready.synchronize()
        content = save(tensors, {"facts": text, "sha256": _digest(tensors, text)})
        replace_file(self.folder / f"step-{step:08d}.safetensors", content)
        for old in self.files()[: -self.keep]:
            old.unlink(missing_ok=True)


def read(path: Path) -> Checkpoint:
    """Read one checkpoint; refuse a file whose checksum does not match."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is cut short or damaged ({error}).") from None
    if metadata.get("sha256") != _digest(tensors, metadata.get("facts", "")):
        raise CheckpointError(f"{path} was altered: its checksum does not match.")
    return Checkpoint(tensors, json.loads(metadata["facts"]))


def _digest(tensors: dict[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _host_copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: _host_copy(tensor) for name, tensor in tensors.items()}


def _host_copy(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    if tensor.device.type == "cpu":
        return tensor.clone(memory_format=torch.contiguous_format)
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return copy.copy_(tensor, non_blocking=True)


_OURS = ("lr", "fused", "foreach", "capturable")
"""Settings that are not restored: the rate follows from the step, the rest from the device."""


def pack_optimizer(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return an optimizer's state as named tensors, and the rest of it as plain values."""
    state = optimizer.state_dict()
    tensors, numbers = {}, {}
    for index, values in state["state"].items():
        for name, value in values.items():
            place = f"optimizer/{index}/{name}"
            if isinstance(value, Tensor):
                tensors[place] = value
            else:
                numbers[place] = value
    groups = [{k: v for k, v in g.items() if k not in _OURS} for g in state["param_groups"]]
    return tensors, {"groups": groups, "numbers": numbers}


def unpack_optimizer(
    optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], facts: dict[str, Any]
) -> None:
    """Give an optimizer the state that `pack_optimizer` returned."""
    state: dict[int, dict[str, Any]] = {}
    packed = {n: t for n, t in tensors.items() if n.startswith("optimizer/")} | facts["numbers"]
    for place, value in packed.items():
        _, index, name = place.split("/", 2)
        state.setdefault(int(index), {})[name] = value
    own = [{k: g[k] for k in _OURS if k in g} for g in optimizer.param_groups]
    groups = [saved | kept for saved, kept in zip(facts["groups"], own, strict=True)]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    for group, kept in zip(optimizer.param_groups, own, strict=True):
        # The original tensors: loading has made copies of them.
        group.update(kept)
    # Files hold contiguous tensors. Fused kernels walk through memory, so a state that belongs to
    # a weight element by element must lie as the weight does (channels_last, for example).
    for p, values in optimizer.state.items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape == p.shape:
                values[name] = torch.empty_like(p, dtype=value.dtype).copy_(value)
