"""How a recipe was named: enough to find it again, for an audit of its run."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.recipe.resolve import find_function, find_recipe
from lockstep.errors import RecipeError


@dataclass(frozen=True, kw_only=True)
class Source:
    """The text that names a recipe, and the flags that change its fields."""

    recipe: str
    """A built-in name, a file that defines `recipe`, or `package.module:recipe`."""
    flags: dict[str, Any] = field(default_factory=dict)
    """Values as they were typed, by the name of the field."""

    def load_recipe(self) -> Recipe:
        """Return the recipe."""
        return override(find_recipe(self.recipe), self.flags)

    def described(self) -> dict[str, Any]:
        """Return the source for run.json: with a path that holds in any folder."""
        path = Path(self.recipe)
        text = str(path.resolve()) if path.suffix == ".py" else self.recipe
        return {"recipe": text, "flags": self.flags, "folder": str(Path.cwd())}


def override(recipe: Recipe, given: dict[str, Any]) -> Recipe:
    """Return `recipe` with the fields of the given flags; look functions up by name."""
    from lockstep.engine.recipe.known import KNOWN

    changes: dict[str, Any] = {}
    for name, value in given.items():
        if name in ("clip", "target", "grow_to", "grow_from"):
            number = _number(name, value)
            if name.startswith("grow") and number is not None and number.is_integer():
                number = int(number)
            changes[name] = number
        elif name in ("metrics", "augment"):
            none = name == "augment" and value == "none"
            texts = [] if none else [text.strip() for text in value.split(";")]
            found = [(t, find_function(name, t, KNOWN[name])) for t in texts]
            changes[name] = dict(found) if name == "metrics" else tuple(f for _, f in found)
        elif name in KNOWN:
            changes[name] = find_function(name, value, KNOWN[name])
        else:
            changes[name] = value
    assert set(given) <= {field.name for field in fields(recipe)}
    return replace(recipe, **changes)


def with_numbers(recipe: Recipe, described: dict[str, Any]) -> Recipe:
    """Return `recipe` with the numbers and words that run.json has of it, such as its seed."""
    plain: dict[str, Any] = {
        name: value
        for name, value in described.items()
        if name != "collate" and isinstance(getattr(recipe, name, recipe), str | int | float | None)
    }
    return replace(recipe, **plain)


def _number(name: str, text: str) -> float | None:
    if text == "none":
        return None
    try:
        return float(text)
    except ValueError:
        flag = name.replace("_", "-")
        raise RecipeError(f"--{flag} {text}: give a number, or none.") from None
