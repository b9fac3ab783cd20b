"""Find what the names in several scripts stand for: modules, functions and classes in full."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import libcst as cst

from lockstep.errors import SourceError
from lockstep.source.reading import read_script
from lockstep.source.scopes import Scope
from lockstep.source.script import Script

MOST_IMPORTED = 500_000
"""The largest module, in bytes, that is read because another imports it."""
_ROOT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_OUTSIDE = {"torch", "numpy", "os", "sys", "typing", "torchvision", "__future__", "collections"}
"""Modules that are never part of the project."""
DEEPEST = 24
"""The most steps that a name or a value is followed."""


class Names:
    """The names of some scripts and of the modules that they import."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self.scripts = list(scripts)
        self._modules: dict[Path, Script | None] = {s.path.resolve(): s for s in scripts}
        self._names: dict[cst.CSTNode, str | None] = {}
        self._places: dict[tuple[str, str], Script | None] = {}
        self._starts: dict[Path, list[Path]] = {}

    def share(self, other: Names) -> None:
        """Use the files and names that another object has read already."""
        self._modules, self._places = other._modules, other._places
        self._names, self._starts = other._names, other._starts

    def name(self, script: Script, node: cst.CSTNode) -> str | None:
        """Return the full name of an expression, such as torch.nn.parallel.DistributedDataParallel.

        Functions and classes of the project are named `./file.py:name`.
        """
        if node not in script.order:
            return self._name(script, node, script.top, 0)
        if node not in self._names:
            self._names[node] = self._name(script, node, script.scope_of(node), 0)
        return self._names[node]

    def _name(self, script: Script, node: cst.CSTNode, scope: Scope, depth: int) -> str | None:
        if depth > DEEPEST:
            return None
        if isinstance(node, cst.Attribute):
            owner = self._name(script, node.value, scope, depth + 1)
            return None if owner is None else f"{owner}.{node.attr.value}"
        if isinstance(node, cst.Call):
            called = self._name(script, node.func, scope, depth + 1)
            if called == "functools.partial" and node.args:
                return self._name(script, node.args[0].value, scope, depth + 1)
            return None
        if not isinstance(node, cst.Name):
            return None
        found = scope.find(node.value)
        if found is None:
            return self._starred(script, node.value, depth)
        owner_scope, bindings = found
        imports = [b for b in bindings if b.kind == "import"]
        # Of `try: from apex... except ImportError: from torch...` take torch, which rules know.
        for binding in sorted(imports, key=lambda b: not b.path.startswith("torch")):
            return self._imported(script, binding.path, depth)
        if any(binding.kind in ("function", "class") for binding in bindings):
            return f"./{script.path.name}:{node.value}"
        if len(bindings) == 1 and bindings[0].kind == "assign" and not bindings[0].index:
            # `DDP = nn.parallel.DistributedDataParallel`
            value = bindings[0].value
            if isinstance(value, cst.Name | cst.Attribute | cst.Call):
                return self._name(script, value, owner_scope, depth + 1)
        return None

    def _imported(self, script: Script, path: str, depth: int) -> str:
        found = self._definition(script, path)
        if found is None or found[1] is None:
            return path
        return self._name(found[0], cst.Name(found[1]), found[0].top, depth + 1) or path

    def _starred(self, script: Script, name: str, depth: int = 0) -> str | None:
        for binding in script.top.bindings.get("*", []):
            other = self.module(script, binding.path)
            if other is not None and depth < DEEPEST:
                found = self._name(other, cst.Name(name), other.top, depth + 1)
                if found is not None:
                    return found
            if other is None and binding.path.split(".")[0] == "torch":
                return f"{binding.path}.{name}"
        return None

    def _star_place(self, script: Script, name: str, depth: int = 0) -> Script | None:
        """Return the script of the project that `from it import *` takes a name from."""
        for binding in script.top.bindings.get("*", []):
            other = self.module(script, binding.path)
            if other is None or depth > DEEPEST:
                continue
            if name in other.top.bindings:
                return other
            found = self._star_place(other, name, depth + 1)
            if found is not None:
                return found
        return None

    def module(self, script: Script, path: str) -> Script | None:
        """Return the script of the project that an import names."""
        key = (script.folder, path)
        if key not in self._places:
            self._places[key] = self._module(script.path.parent.resolve(), path)
        return self._places[key]

    def _module(self, folder: Path, path: str) -> Script | None:
        level = len(path) - len(path.lstrip("."))
        parts = [part for part in path.lstrip(".").split(".") if part]
        if level:
            starts = [folder.joinpath(*[".."] * (level - 1))]
        elif not parts or parts[0] in _OUTSIDE:
            return None
        else:
            starts = self._starts_of(folder)
        for start in starts:
            places = [start.joinpath(*parts, "__init__.py")]
            if parts:
                places.insert(0, start.joinpath(*parts[:-1], f"{parts[-1]}.py"))
            for place in places:
                found = self._load(place.resolve() if level else place)
                if found is not None:
                    return found
        return None

    def _starts_of(self, folder: Path) -> list[Path]:
        """Return where Python looks for modules: beside the script, and beside its package."""
        if folder not in self._starts:
            found = [folder]
            here = folder
            while (here / "__init__.py").is_file() and here.parent != here:
                here = here.parent
                found.append(here)
            for parent in (here, *list(here.parents)[:3]):
                if any((parent / mark).exists() for mark in _ROOT_MARKS):
                    found += [parent, parent / "src"]
                    break
            # Packages installed beside a library are not part of it.
            own = [place for place in found if place.name not in ("site-packages", "dist-packages")]
            self._starts[folder] = list(dict.fromkeys(own))
        return self._starts[folder]

    def _load(self, place: Path) -> Script | None:
        if place not in self._modules:
            self._modules[place] = None
            if place.is_file() and place.stat().st_size <= MOST_IMPORTED:
                # Python reports the error when the program runs.
                with suppress(SourceError):
                    self._modules[place] = read_script(place)
        return self._modules[place]

    def _definition(self, script: Script, path: str) -> tuple[Script, str | None] | None:
        """Return the script that an imported path leads to, and the name in it."""
        module = self.module(script, path)
        if module is not None:
            return module, None
        if "." not in path.lstrip("."):
            head = path[: len(path) - len(path.lstrip("."))]
            module = self.module(script, head) if head else None
            return None if module is None else (module, path.lstrip("."))
        head, _, name = path.rpartition(".")
        module = self.module(script, head or ".")
        return None if module is None else (module, name)
