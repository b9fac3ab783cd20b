"""The built-in recipes, and how to find one by its name."""

from lockstep.engine.recipe.builtin import DIGITS, RECIPES
from lockstep.engine.recipe.resolve import find_recipe

__all__ = ["DIGITS", "RECIPES", "find_recipe"]
