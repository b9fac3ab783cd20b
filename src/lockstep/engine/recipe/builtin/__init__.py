"""The built-in recipes: one file each. A file that defines a `Recipe` is found by itself."""

from importlib import import_module
from pkgutil import iter_modules

from lockstep.engine.recipe.builtin.digits import DIGITS
from lockstep.engine.recipe.recipe import Recipe

RECIPES: dict[str, Recipe] = {
    found.name: found
    for info in iter_modules(__path__)
    for found in vars(import_module(f"{__name__}.{info.name}")).values()
    if isinstance(found, Recipe)
}
"""Every built-in recipe by its name."""

__all__ = ["DIGITS", "RECIPES"]
