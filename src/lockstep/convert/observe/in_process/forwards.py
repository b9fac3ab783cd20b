"""Note where a script calls its models, and whether a backward pass goes through them."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from lockstep.probes.recorder import Recorder, is_ours, kind_of
from lockstep.probes.spans import Span, script_frame, self_of, span_of, stack


class _Model:
    """What is known of one trained module that the script calls."""

    def __init__(self, module: nn.Module, number: int) -> None:
        self.module, self.number = module, number
        self.unused = False
        """Whether a backward pass left out some of its parameters."""
        self.again = False
        """Whether one backward pass went through two of its forward passes."""
        self.changes = False
        """Whether other parameters were trained later."""
        self.trained = frozenset[int]()
        self.every = set[int]()
        """Identities of all parameters that were trained at some time."""
        self.norms = _has_norms(module)
        self.buffers = any(True for _ in module.buffers())


def _has_norms(module: nn.Module) -> bool:
    return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules())


def _is_called() -> bool:
    """Return whether the script calls the module itself, and no library does."""
    frame: Any = sys._getframe(2)
    while frame is not None and kind_of(frame.f_code.co_filename) != "script":
        path = frame.f_code.co_filename
        if not is_ours(path) and "/torch/nn/modules/module.py" not in path:
            return False
        frame = frame.f_back
    return True


class Forwards:
    """Calls of modules by the script, and whether a backward pass went through them."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.depth = 0
        self.models: WeakKeyDictionary[nn.Module, _Model] = WeakKeyDictionary()
        self.order: list[_Model] = []
        self.sites: dict[tuple[Span, int], dict[str, Any]] = {}
        self.evaluated: dict[Span, dict[str, Any]] = {}
        """Places where a model is called without gradients, to evaluate it."""
        self.learned: Counter[int] = Counter()
        """By model: how many of its outputs the current backward pass has reached."""
        self.reached: set[int] = set()
        """Identities of the parameters that the current backward pass has reached."""
        self.hooked: set[int] = set()
        self.covered: set[int] = set()
        """Identities of parameters of models that are called."""
        register_module_forward_pre_hook(self._begins)
        register_module_forward_hook(self._ends, with_kwargs=True, always_call=True)
        recorder.on_backward.append(self._backward)
        recorder.after_backward.append(self._after)
        recorder.on_end.append(self._note)

    def _begins(self, module: nn.Module, _: Any) -> None:
        self.depth += 1

    def _ends(self, module: nn.Module, given: Any, named: Any, output: Any) -> None:
        self.depth -= 1
        if self.depth or self.recorder.worker:
            return
        trained = [p for p in module.parameters() if p.requires_grad]
        if not trained or not torch.is_grad_enabled():
            self._looks(module)
            if not torch.is_grad_enabled() and not module.training:
                self._evaluates(module, given, named, output)
            return
        frame = script_frame()
        if frame is None:
            return
        model = self._model(module, trained)
        owner = self_of(frame)
        key = (span_of(frame), model.number)
        site = self.sites.setdefault(key, {
            "span": key[0], "stack": stack() if key not in self.sites else [],
            "model": model.number, "forwards": 0, "learned": 0,
            "inside": (isinstance(owner, nn.Module) and owner is not module) or not _is_called(),
            "of": type(module).__name__,
        })  # fmt: skip
        site["forwards"] += 1
        for tensor in _tensors(output):
            if tensor.requires_grad and not (tensor.is_leaf and id(tensor) in self.covered):
                tensor.register_hook(self._hook(site, model))
                break

    def _looks(self, module: nn.Module) -> None:
        """Note a forward pass that learns nothing, but moves the statistics of batch norm."""
        if not module.training or not _has_norms(module):
            return
        frame = script_frame()
        if frame is not None:
            self.recorder.note("moves_norms", span=span_of(frame), direct=_is_called())

    def _evaluates(self, module: nn.Module, given: Any, named: Any, output: Any) -> None:
        """Note whether all that goes in and comes out has a row for every sample."""
        frame = script_frame()
        if frame is None:
            return
        rows = len(given[0]) if given and isinstance(given[0], Tensor) and given[0].dim() else 0
        tensors = [*_tensors([given, named]), *_tensors(output)]
        site = self.evaluated.setdefault(span_of(frame), {"rows": 0, "whole": True})
        site["rows"] = max(site["rows"], rows)
        site["whole"] &= (
            rows > 0
            and _is_called()
            and isinstance(output, Tensor | dict | list | tuple)
            and not (isinstance(self_of(frame), nn.Module) and self_of(frame) is not module)
            and all(t.dim() and len(t) == rows for t in tensors)
        )

    def _hook(self, site: dict[str, Any], model: _Model) -> Any:
        def reached(_: Tensor) -> None:
            site["learned"] += 1
            self.learned[model.number] += 1

        return reached

    def _model(self, module: nn.Module, trained: list[nn.Parameter]) -> _Model:
        model = self.models.get(module)
        if model is None:
            model = self.models[module] = _Model(module, len(self.order))
            self.order.append(model)
        now = frozenset(map(id, trained))
        model.changes = model.changes or bool(model.trained and model.trained != now)
        model.trained = now
        model.every |= now
        self.covered |= now
        for p in trained:
            if id(p) not in self.hooked:
                self.hooked.add(id(p))
                p.register_post_accumulate_grad_hook(lambda p: self.reached.add(id(p)))
        return model

    def _backward(self) -> None:
        self.learned.clear()
        self.reached.clear()

    def _after(self) -> None:
        for number, times in self.learned.items():
            model = self.order[number]
            model.again = model.again or times > 1
            model.unused = model.unused or bool(model.trained - self.reached)

    def _note(self) -> None:
        owners = Counter(p for model in self.order for p in model.every)
        for model in self.order:
            self.recorder.note(
                "model",
                shared=any(owners[p] > 1 for p in model.every),
                model=model.number,
                unused=model.unused,
                again=model.again,
                changes=model.changes,
                norms=model.norms,
                buffers=model.buffers,
            )
        for site in self.sites.values():
            self.recorder.note("forwards", **site)
        for span, site in self.evaluated.items():
            self.recorder.note("evaluates", span=span, **site)
        self.order, self.sites, self.evaluated = [], {}, {}


def _tensors(value: Any, depth: int = 4) -> list[Tensor]:
    """Return the tensors inside an output."""
    if isinstance(value, Tensor):
        return [value]
    if not depth:
        return []
    if isinstance(value, dict):
        return [t for item in value.values() for t in _tensors(item, depth - 1)]
    if isinstance(value, list | tuple):
        return [t for item in value for t in _tensors(item, depth - 1)]
    if hasattr(value, "__dict__"):
        return [t for item in vars(value).values() for t in _tensors(item, depth - 1)]
    return []
