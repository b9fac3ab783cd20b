"""Put off the import of torch._dynamo until something is compiled.

Every optimizer and every DDP model of torch imports its compiler, torch._dynamo, and then makes
only calls that do nothing in eager training. The import costs more than half a second of CPU time.
Here a module of the same name answers those calls. Any other use, such as `torch.compile`, imports
the compiler after all.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from lockstep.world import compile_deterministically

NAME = "torch._dynamo"


def put_off_dynamo() -> None:
    """Import torch, and let a stand-in answer for torch._dynamo unless it is imported already."""
    torch = importlib.import_module("torch")
    if NAME in sys.modules or (spec := find_spec(NAME)) is None:
        return
    stand_in = _StandIn(spec)
    sys.modules |= stand_in.modules
    setattr(torch, "_dynamo", stand_in)  # noqa: B010
    sys.meta_path.insert(0, stand_in.finder)


def use_deterministic_algorithms() -> None:
    """Do what torch's function of this name does; it would import the compiler to tell it, too."""
    torch = importlib.import_module("torch")
    unread = "torch._inductor.config" not in sys.modules
    if unread and isinstance(sys.modules.get(NAME), _StandIn):
        # The compiler reads this when it is imported.
        compile_deterministically()
        torch._C._set_deterministic_algorithms(True, warn_only=False)
    else:
        torch.use_deterministic_algorithms(True)


class _Part(ModuleType):
    """Stands for a module inside torch._dynamo of which some functions are known."""

    def __init__(self, owner: _StandIn, name: str, **functions: Callable[..., Any]) -> None:
        super().__init__(f"{NAME}.{name}")
        self._owner, self._part = owner, name
        vars(self).update(functions)

    def real(self) -> Any:
        """Import torch._dynamo, and return this part of it."""
        return getattr(self._owner.real(), self._part)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self.real(), name)


class _StandIn(ModuleType):
    """Answers what eager training asks of torch._dynamo."""

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(NAME)
        self.__spec__ = spec
        self.__file__ = spec.origin
        self.__path__ = list(spec.submodule_search_locations or ())
        self.finder = _Finder(self)
        # What init_process_group calls, and what every DDP model asks. The answer is torch's
        # default; to change it, a program has to import torch._dynamo.config.
        self.trace_rules = _Part(self, "trace_rules", clear_lru_cache=lambda: None)
        self.utils = _Part(
            self,
            "utils",
            get_optimize_ddp_mode=lambda: "ddp_optimizer",
            # Torchvision imports it by name, and calls it only to compile.
            is_compile_supported=lambda device: self.utils.real().is_compile_supported(device),
        )
        self.modules: dict[str, ModuleType] = {
            NAME: self,
            self.utils.__name__: self.utils,
            self.trace_rules.__name__: self.trace_rules,
        }

    def graph_break(self, msg: str = "") -> None:
        """Do nothing: nothing is compiled."""

    def disable(self, fn: Any = None, recursive: bool = True, **options: Any) -> Any:
        """Return a function of torch's own that a later compiler must not look into."""
        if fn is None or options != {"wrapping": False}:
            return self.real().disable(fn, recursive, **options)
        known: list[Callable[..., Any]] = []

        def call(*arguments: Any, **keywords: Any) -> Any:
            if sys.modules.get(NAME) is self:
                return fn(*arguments, **keywords)
            if not known:
                known.append(self.real().disable(fn, recursive, **options))
            return known[0](*arguments, **keywords)

        return call

    def real(self) -> Any:
        """Import torch._dynamo, unless that has happened."""
        if sys.modules.get(NAME) is self:
            torch = sys.modules["torch"]
            sys.meta_path.remove(self.finder)
            del torch._dynamo
            for name in self.modules:
                del sys.modules[name]
        return importlib.import_module(NAME)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # Python looks for special names in every module; none needs the compiler.
            raise AttributeError(f"module {NAME!r} has no attribute {name!r}")
        return getattr(self.real(), name)


class _Finder:
    """Imports torch._dynamo when a module inside it is imported."""

    def __init__(self, stand_in: _StandIn) -> None:
        self.stand_in = stand_in

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module that importing torch._dynamo has loaded; leave others to Python."""
        if not name.startswith(f"{NAME}."):
            return None
        self.stand_in.real()
        if name not in sys.modules:
            return find_spec(name)
        # Python would load the module a second time if it found it here.
        return ModuleSpec(name, _Loaded(sys.modules.pop(name)))


class _Loaded(Loader):
    """Hands out a module that is loaded already."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module."""
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Undo what Python has noted in the module: it was executed before."""
        # Not by an assignment: modules of settings refuse names that they do not know.
        vars(module)["__spec__"] = self.spec
