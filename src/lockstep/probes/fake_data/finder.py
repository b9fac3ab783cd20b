"""Finds a stand-in for a library that the script imports and nobody has installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from lockstep.probes.fake_data.notes import asked_by_script, note
from lockstep.probes.fake_data.silent import SilentLoader
from lockstep.probes.imports import behind

PACKAGES = Path(__file__).parent / "packages"
"""Stand-ins that do something: they are imported under the names of their folders."""
BOARD = "torch.utils.tensorboard"
SILENT = (
    *("matplotlib", "mpl_toolkits", "seaborn", "visdom"),
    *("tensorboard", "tensorboardX", BOARD, "mlflow", "comet_ml", "neptune", "clearml"),
    *("torchsummary", "torchinfo"),
)
"""Libraries whose calls show or log, and give nothing that a training needs."""


def install() -> None:
    """Ask us last for what nobody else has, and first for what must be changed."""
    if not any(isinstance(finder, _Last) for finder in sys.meta_path):
        sys.meta_path.insert(0, _First())
        sys.meta_path.append(_Last())


class _Last:
    """For libraries that no other finder knows."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in sys.modules or not (_is_silent(name) or _is_ours(name)):
            return None
        if not asked_by_script():
            return None
        if _is_silent(name):
            return _silent(name)
        note(f"{name}: not installed, a small stand-in")
        folder = PACKAGES / name
        return spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )


class _First:
    """For modules that are there, and cannot do without what is not."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == BOARD and PathFinder.find_spec("tensorboard") is None and asked_by_script():
            return _silent(name)
        if name == "torchvision.datasets" and path and not _within_ours(path):
            return behind(PathFinder.find_spec(name, path), _supply())
        return None


def _supply() -> Callable[[ModuleType], None]:
    def supply(module: ModuleType) -> None:
        from lockstep.probes.fake_data import missing

        missing.install(module)

    return supply


def _silent(name: str) -> ModuleSpec:
    if name in SILENT:
        note(f"{name}: not installed, its calls do nothing")
    return ModuleSpec(name, SilentLoader(), is_package=True)


def _is_silent(name: str) -> bool:
    """Whether it is one of them, or a part of one that we stand in for."""
    root = next((root for root in SILENT if name.startswith(f"{root}.")), None)
    if root is not None and root in sys.modules:
        spec = sys.modules[root].__spec__
        return spec is not None and isinstance(spec.loader, SilentLoader)
    return name in SILENT


def _is_ours(name: str) -> bool:
    return "." not in name and (PACKAGES / name / "__init__.py").exists()


def _within_ours(path: Sequence[str]) -> bool:
    return any(str(place).startswith(str(PACKAGES)) for place in path)
