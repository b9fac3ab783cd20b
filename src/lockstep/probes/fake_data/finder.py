"""Find a stand-in for a library that the script imports and that is not installed."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import version
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from lockstep.probes.fake_data.notes import asked_by_script, note
from lockstep.probes.fake_data.silent import SilentLoader
from lockstep.probes.imports import behind

PACKAGES = Path(__file__).parent / "packages"
"""Stand-ins that do something: they are imported under the names of their files."""
BOARD = "torch.utils.tensorboard"
SILENT = (
    *("matplotlib", "mpl_toolkits", "seaborn", "visdom"),
    *("tensorboard", "tensorboardX", BOARD, "mlflow", "comet_ml", "neptune", "clearml"),
    *("torchsummary", "torchinfo"),
)
"""Libraries whose calls show or log, and return nothing that a training needs."""
SUPPLIED = {
    "torchvision.extension": "torchvision.declare_operators",
    "torchvision.datasets": "torchvision.supply_data",
    "torchvision.models._api": "torchvision.supply_weights",
    "transformers.modeling_utils": "hub.supply_models",
    "transformers.models.auto.auto_factory": "hub.supply_auto_models",
    "transformers.models.auto.configuration_auto": "hub.supply_configurations",
    "transformers.models.auto.tokenization_auto": "hub.supply_tokenizers",
    "transformers.tokenization_utils_base": "hub.supply_tokenizers",
    "datasets.load": "hub.supply_data",
}
"""Modules that are changed once they are imported, and the function of ours that changes each."""


def install() -> None:
    """Add two finders: the first for modules to change, the last for modules that are missing."""
    if not any(isinstance(finder, _Last) for finder in sys.meta_path):
        sys.meta_path.insert(0, _First())
        sys.meta_path.append(_Last())
        for name in SUPPLIED.keys() & sys.modules.keys():
            _supply(sys.modules[name])


class OperatorFinder:
    """Lets torchvision be imported where its compiled part does not load."""

    name = "torchvision.extension"

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return the spec of the module that loads the compiled part, and supply the rest."""
        return behind(PathFinder.find_spec(name, path), _supply) if name == self.name else None


class _First:
    """Finds modules that are installed, and need something that is not."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name == BOARD and PathFinder.find_spec("tensorboard") is None and asked_by_script():
            return _silent(name)
        return behind(PathFinder.find_spec(name, path), _supply) if name in SUPPLIED else None


def _supply(module: ModuleType) -> None:
    home, _, name = SUPPLIED[module.__name__].partition(".")
    getattr(import_module(f"lockstep.probes.fake_data.{home}"), name)(module)


class _Last:
    """Finds stand-ins for libraries that no other finder knows."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        own = PACKAGES / f"{name}.py"
        if "." not in name and (PACKAGES / name / "__init__.py").exists():
            own = PACKAGES / name / "__init__.py"
        known = name == "torchvision" or _is_silent(name) or ("." not in name and own.exists())
        if name in sys.modules or not known or not asked_by_script():
            return None
        if name == "torchvision":
            raise ModuleNotFoundError(_without_torchvision(), name=name)
        if _is_silent(name):
            return _silent(name)
        note(f"{name}: not installed, a small stand-in")
        return spec_from_file_location(name, own)


def _without_torchvision() -> str:
    minor = int(version("torch").split(".")[1])
    # Without its dependencies: pip would exchange torch for the build that torchvision names.
    return (
        "No module named 'torchvision'. To install it and keep torch as it is, type: "
        f"pip install --no-deps 'torchvision==0.{minor + 15}.*' pillow"
    )


def _silent(name: str) -> ModuleSpec:
    if name in SILENT:
        note(f"{name}: not installed, its calls do nothing")
    return ModuleSpec(name, SilentLoader(), is_package=True)


def _is_silent(name: str) -> bool:
    """Whether a module is one of SILENT, or a part of one that is silent already."""
    root = next((root for root in SILENT if name.startswith(f"{root}.")), None)
    if root is not None and root in sys.modules:
        spec = sys.modules[root].__spec__
        return spec is not None and isinstance(spec.loader, SilentLoader)
    return name in SILENT
