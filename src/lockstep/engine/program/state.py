"""The state of a program: what a checkpoint must hold, and how to take it over again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.data.nested import digest
from lockstep.data.readers import IndexedReader, Wanted
from lockstep.engine.checks.identity import identity, spoken
from lockstep.engine.checks.suspects import Suspects, unseeded
from lockstep.engine.group import Group
from lockstep.engine.model import ShardedModel
from lockstep.engine.program.batches import Batches
from lockstep.engine.program.step import Stepper
from lockstep.engine.recipe.prepare import some
from lockstep.engine.run.checkpoint import Checkpoint
from lockstep.engine.run.packing import pack, unpack
from lockstep.engine.run.run_folder import copy_weights
from lockstep.errors import DataError, FolderError, RecipeError, Untrusted


class ProgramState:
    """Models, optimizers, kept objects and positions of a program, by name."""

    def __init__(self) -> None:
        self.models: dict[str, ShardedModel] = {}
        self.steppers: dict[str, Stepper] = {}
        self.kept: dict[str, Any] = {}
        self.batches: list[Batches] = []
        self.identities: dict[str, str] = {}
        """What a resumed program must be equal in."""
        self.changed: list[str] = []
        """What was found to differ from the program that made the checkpoint."""
        self._expected: dict[str, str] = {}
        self._parameters: set[Tensor] = set()
        """The parameters with which training began."""

    def add_model(self, name: str, model: ShardedModel) -> None:
        """Add a model under its name, or that of its class."""
        kind = re.sub(r"(?<!^)(?=[A-Z])", "_", type(model.module).__name__).lower()
        name = name or kind
        if name in self.models:
            raise RecipeError(
                f"two models are called {name!r}. Name them: loop.model(net, name='second')."
            )
        self.models[name] = model
        self.identify(f"model {name}", model.module)

    def module(self) -> nn.Module:
        """Return the only model, or all of them under their names: what a file of weights holds."""
        modules = {name: model.module for name, model in self.models.items()}
        return next(iter(modules.values())) if len(modules) == 1 else nn.ModuleDict(modules)

    def load_weights(self, file: Path) -> None:
        """Copy the weights in a file into the models."""
        copy_weights(file, self.module())
        for model in self.models.values():
            model.spread_batch_norm()

    def keep(self, things: dict[str, Any]) -> None:
        """Add objects that have a state of their own."""
        for name, value in things.items():
            if not hasattr(value, "state_dict") or not hasattr(value, "load_state_dict"):
                raise RecipeError(
                    f"{name} ({type(value).__name__}) cannot be kept: it has no state_dict and "
                    "load_state_dict."
                )
            self.kept[name] = value

    def unkept_schedulers(self) -> list[str]:
        """Return the names of optimizers whose scheduler is not kept."""
        known = {id(getattr(value, "optimizer", None)) for value in self.kept.values()}
        return [
            name
            for name, stepper in self.steppers.items()
            # torch's schedulers put this mark on the optimizer's method.
            if hasattr(stepper.optimizer.step, "_wrapped_by_lr_sched")
            and id(stepper.optimizer) not in known
        ]

    def names(self) -> dict[Tensor, str]:
        """Return the name of every parameter."""
        several = len(self.models) > 1
        return {
            p: f"{owner}.{name}" if several else name
            for owner, model in self.models.items()
            for name, p in model.module.named_parameters()
        }

    def compare_weights(self, group: Group) -> None:
        """Refuse models that were built with different weights on different replicas."""
        self._parameters = set(self.names())
        own = {name: model.digest() for name, model in self.models.items()}
        every = group.objects(own)
        odd = [name for name in own if len({one.get(name) for one in every}) > 1]
        if odd:
            raise RecipeError(
                f"the replicas built {odd[0]} with different weights: what builds it depends on "
                "something besides the seed of the loop. Build it after the Loop, and do not seed "
                "generators by rank or time."
            )

    def refuse_drift(self, step: int) -> None:
        """Refuse weights that have become different on other replicas."""
        if self._parameters and (new := self._appeared()):
            raise Untrusted(
                f"{some(new)} appeared while the program trained. No check and no checkpoint knows "
                "it, and another replica may create it in another step. Create all parameters "
                "before the first epoch."
            )
        for name, model in self.models.items():
            model.refuse_drift(step, f"{name}.")

    def _appeared(self) -> list[str]:
        return [name for p, name in self.names().items() if p not in self._parameters]

    def compare_samples(self, group: Group) -> None:
        """Refuse data that read differently on other replicas, and remember their first samples."""
        for number, batches in enumerate(self.batches):
            own, kind = digest(batches.reader.probe()), type(batches.reader.data).__name__
            if len(set(group.objects(own))) > 1:
                raise DataError(
                    f"the replicas read different samples from {kind}: it depends on something "
                    "besides the seed, such as the rank, the time, or a set of strings, whose "
                    "order differs between processes (sort it)."
                )
            self.fact(f"first samples of data set {number}", own)

    def refuse_memories(self, samples: int, may_change: Sequence[str]) -> None:
        """Refuse data or collate functions that remember what they read before."""
        for batches in self.batches:
            reader = batches.reader
            if isinstance(reader, IndexedReader) and not reader.reads_twice_alike(samples):
                raise DataError(
                    f"the same samples of {type(reader.data).__name__}, read and collated twice, "
                    "differ: the data set or the collate function remembers what it read before "
                    "(a running mean, a cache, a counter), or draws from a generator of its own. "
                    "Exact mode cannot keep its promise with these data."
                )
            if not isinstance(reader, IndexedReader) or reader.columns is not None:
                continue
            functions = [getattr(reader.data, "__getitem__", None), reader.collate.collate]
            suspects = Suspects([f for f in functions if f is not None])
            size = min(samples, len(reader.data))
            reader.read(Wanted(0, list(range(size)), 0, 0))
            if odd := [name for name in suspects.changed() if name not in may_change]:
                raise DataError(
                    unseeded(odd)
                    or f"reading samples of {type(reader.data).__name__} changes {some(odd)}: "
                    "workers and replicas, which read other samples, count differently. If nothing "
                    f"but a log depends on it, allow it with may_change={odd!r}, or with "
                    f"--may-change {','.join(odd)}."
                )

    def identify(self, name: str, value: Any) -> None:
        """Remember the code of a function or class; note if a checkpoint had another."""
        if name in self.identities:
            return
        code = type(value) if isinstance(value, nn.Module) else value
        own = self.identities[name] = identity(code)
        if self._expected.get(name, own) != own:
            self.changed.append(f"{name}: {spoken(value)} is not what it was")

    def fact(self, name: str, value: Any) -> None:
        """Remember a plain value; note if a checkpoint had another."""
        own = self.identities[name] = repr(value)
        if self._expected.get(name, own) != own:
            self.changed.append(f"{name} was {self._expected[name]}, now {own}")

    def expect(self, identities: dict[str, str]) -> None:
        """Compare with the program that made a checkpoint, now and whenever more is known."""
        self._expected = identities
        for name, own in self.identities.items():
            if identities.get(name, own) != own:
                self.changed.append(
                    f"{name} was {identities[name]}, now {own}"
                    if not re.fullmatch(r"[0-9a-f]{16}", own)
                    else f"{name} has other code than it had"
                )
        missing = [n for n in identities if n.startswith("model ") and n not in self.identities]
        self.changed += [f"{name} is gone" for name in missing]

    def refuse_changes(self, folder: Any) -> None:
        """Refuse to go on with a program that is not the one of the checkpoint."""
        if self.changed:
            raise FolderError(
                f"{folder} holds a run of another program: {'; '.join(self.changed)}. Resume with "
                "the same program, start a new run in another folder, or pass accept_changes=True "
                "to Loop if the change is meant."
            )

    def snapshot(self) -> Checkpoint:
        """Return the whole state; all replicas take part."""
        tensors: dict[str, Tensor] = {}
        for name, model in self.models.items():
            for place, tensor in model.state().items():
                tensors[f"{name}:{place}"] = tensor
        optimizers = {
            name: pack(stepper.optimizer.state_dict(), f"optimizer {name}", tensors)
            for name, stepper in self.steppers.items()
        }
        kept = {
            name: pack(value.state_dict(), f"kept {name}", tensors)
            for name, value in self.kept.items()
        }
        facts = {
            "optimizers": optimizers,
            "kept": kept,
            "modes": {name: model.modes() for name, model in self.models.items()},
            "positions": [batches.state() for batches in self.batches],
            "identities": dict(self.identities),
        }
        return Checkpoint(tensors, facts)

    def compare(self, facts: dict[str, Any]) -> None:
        """Note what differs from the program that made a checkpoint."""
        self.expect(facts["identities"])
        for kind, own in (("optimizers", self.steppers), ("kept", self.kept)):
            if facts[kind].keys() != own.keys():
                odd = sorted(facts[kind].keys() ^ own.keys())
                self.changed.append(f"{kind} differ: {', '.join(odd)}")
        if len(facts["positions"]) != len(self.batches):
            then, now = len(facts["positions"]), len(self.batches)
            self.changed.append(f"it read {then} data sets, now {now}")

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take over a saved state."""
        tensors, facts = checkpoint
        for name, model in self.models.items():
            own = {
                place.removeprefix(f"{name}:"): tensor
                for place, tensor in tensors.items()
                if place.startswith(f"{name}:")
            }
            model.load(own)
            model.set_modes(facts.get("modes", {}).get(name))
        for name, stepper in self.steppers.items():
            _load_optimizer(stepper.optimizer, unpack(facts["optimizers"][name], tensors))
        for name, value in self.kept.items():
            value.load_state_dict(unpack(facts["kept"][name], tensors))
        for batches, position in zip(self.batches, facts["positions"], strict=True):
            batches.load(position)


def _load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    optimizer.load_state_dict(state)
    # Files hold contiguous tensors. Fused kernels walk through memory, so a state that belongs to
    # a weight element by element must lie as the weight does (channels_last, for example).
    for p, values in optimizer.state.items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape == p.shape:
                values[name] = torch.empty_like(p, dtype=value.dtype).copy_(value)
