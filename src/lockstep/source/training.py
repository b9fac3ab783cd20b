"""Collect the parts of the training in a program: loaders, loops, wrapped models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

import libcst as cst

from lockstep.source.frameworks import framework
from lockstep.source.loaders import Loader, Loop, loaders
from lockstep.source.models import CUTS, WRAPPERS, Wrap, inner_call
from lockstep.source.project import Project
from lockstep.source.script import Script
from lockstep.source.unused_code import unused

_GROUPS = (
    "torch.distributed.init_process_group",
    "torch.distributed.distributed_c10d.init_process_group",
    "torch.distributed.init_device_mesh",
    "torch.distributed.device_mesh.init_device_mesh",
    "torch.distributed.fsdp.fully_shard",
)
_GPU = re.compile(r"\.cuda\b|[\"']cuda|\bnccl\b")


class Training:
    """The parts of the training in some scripts."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def named(self, *names: str) -> Iterator[tuple[Script, cst.Call]]:
        """Yield calls by the full name of what they call."""
        return self.project.calls(*names)

    def methods(self, *names: str) -> Iterator[tuple[Script, cst.Call]]:
        """Yield calls of methods by their name, on any object."""
        for script in self.project.scripts:
            for call in script.named_last(*names):
                yield script, call

    @cached_property
    def framework(self) -> str | None:
        """The framework that does part of the work, if any."""
        return framework(self.project)

    @cached_property
    def distributed(self) -> bool:
        """Whether the scripts train on several replicas.

        A helper that a program imports but never names does not count: a converter of checkpoints
        may take one class from a large package.
        """
        if any(self.used(wrap.script, wrap.call) for wrap in self.wraps):
            return True
        return any(self.used(script, call) for script, call in self.named(*_GROUPS))

    @cached_property
    def on_gpus(self) -> bool:
        """Whether the scripts mention GPUs."""
        return any(_GPU.search(script.text) for script in self.project.scripts)

    def used(self, script: Script, node: cst.CSTNode) -> bool:
        """Return whether the program may reach a place: every function around it is named."""
        if script is self.project.scripts[0]:
            return True
        return not any(parent in self._unused for parent in script.above(node))

    @cached_property
    def _unused(self) -> set[cst.CSTNode]:
        return unused(self.project)

    @cached_property
    def wraps(self) -> list[Wrap]:
        """All wrapped models."""
        return [Wrap(script, call) for script, call in self.named(*WRAPPERS)]

    @cached_property
    def copies(self) -> list[Wrap]:
        """Models wrapped in DDP, with a copy on every rank; FSDP cuts them instead."""
        name = self.project.name
        return [w for w in self.wraps if not (name(w.script, w.call.func) or "").endswith(CUTS)]

    def wrapped(self, script: Script, node: cst.CSTNode) -> bool:
        """Return whether a value may be a model in DDP at this place."""
        calls = {wrap.call for wrap in self.copies}
        for origin in self.project.origins(script, node):
            made = origin.call
            while made is not None and made not in calls:
                made = inner_call(made)
            if made is not None and not (origin.script is script and script.later(made, node)):
                return True
        return False

    @cached_property
    def loaders(self) -> list[Loader]:
        """All DataLoaders, with the loops over them."""
        return loaders(self.project)

    @cached_property
    def loops(self) -> list[Loop]:
        """All loops over batches."""
        return [loop for loader in self.loaders for loop in loader.loops]
