"""Collect the parts of the training in a program: loaders, loops, wrapped models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

import libcst as cst

from lockstep.source.frameworks import framework
from lockstep.source.loader_loops import loaders
from lockstep.source.loaders import Loader, Loop
from lockstep.source.models import CUTS, WRAPPERS, Wrap, inner_call
from lockstep.source.project import Project
from lockstep.source.script import Script
from lockstep.source.unused_code import unused

GROUPS = (
    "torch.distributed.init_process_group",
    "torch.distributed.distributed_c10d.init_process_group",
    "torch.distributed.init_device_mesh",
    "torch.distributed.device_mesh.init_device_mesh",
    "torch.distributed.fsdp.fully_shard",
)
_JOINS = re.compile(
    r"init_process_group|init_dist|init_device_mesh|setup_dist|dist_init|ddp_setup|setup_ddp|"
    r"init_torch_dist|launch|spawn|torchrun|horovod|accelerate|deepspeed|comm\.|initialize|"
    r"init_ddp|init_multi|distributed_init"
)
"""Code that joins the ranks, here or in another package; without it, nothing is distributed."""
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
        wraps = any(self.runs(wrap.script, wrap.call) for wrap in self.wraps)
        if wraps and any(_JOINS.search(script.text) for script in self.project.scripts):
            return True
        return any(self._joins(script, call) for script, call in self.named(*GROUPS))

    @cached_property
    def switched_off(self) -> bool:
        """Whether data-parallel code is there that the program as it is written never reaches."""
        every = [*((w.script, w.call) for w in self.wraps), *self.named(*GROUPS)]
        return not self.distributed and any(self.used(*use) for use in every)

    def _joins(self, script: Script, call: cst.Call) -> bool:
        """Return whether a call that joins the ranks may run."""
        if not self.used(script, call):
            return False
        tests = (script.code(p.test) for p in script.above(call) if isinstance(p, cst.If))
        # `if not dist.is_initialized(): dist.init_process_group()`
        return self.runs(script, call) or any("initialized" in test for test in tests)

    @cached_property
    def on_gpus(self) -> bool:
        """Whether the scripts mention GPUs."""
        return any(_GPU.search(script.text) for script in self.project.scripts)

    def used(self, script: Script, node: cst.CSTNode) -> bool:
        """Return whether the program may reach a place: every function around it is named."""
        return not any(parent in self._unused for parent in script.above(node))

    def runs(self, script: Script, node: cst.CSTNode) -> bool:
        """Return whether several ranks may reach a place."""
        return self.used(script, node) and self.project.runs(script, node)

    @cached_property
    def _unused(self) -> set[cst.CSTNode]:
        return unused(self.project)

    @cached_property
    def wraps(self) -> list[Wrap]:
        """All wrapped models."""
        every = [Wrap(script, call) for script, call in self.named(*WRAPPERS)]
        return [wrap for wrap in every if self.runs(wrap.script, wrap.call)] or every

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
        return loaders(self.project, self.runs)

    @cached_property
    def loops(self) -> list[Loop]:
        """All loops over batches."""
        return [loop for loader in self.loaders for loop in loader.loops]
