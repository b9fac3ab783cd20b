"""Find the recipe or function that a user typed."""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lockstep.engine.recipe.recipe import Recipe
from lockstep.errors import LockstepError, RecipeError, raised
from lockstep.processes.fork import one_thread


def find_recipe(text: str) -> Recipe:
    """Find a built-in name, `path/to/file.py` (which defines `recipe`), or `module:recipe`."""
    from lockstep.engine.recipe.builtin import RECIPES

    if text in RECIPES:
        return RECIPES[text]
    with one_thread():
        return _load_recipe(text, RECIPES)


def _load_recipe(text: str, built_in: Mapping[str, Recipe]) -> Recipe:
    if text.endswith(".py"):
        module = _load_file(Path(text))
        if not hasattr(module, "recipe"):
            raise RecipeError(
                f"{text} does not define `recipe`. Write: recipe = lockstep.Recipe(...), or train "
                "with lockstep.Loop."
            )
        found: Any = module.recipe
        where = f"`recipe` in {text} is {type(found).__name__}"
    elif ":" in text:
        found = find_object(text)
        where = f"{text} is {type(found).__name__}"
    else:
        raise RecipeError(
            _unknown("recipe", text, built_in) + " Or give a file.py, or module:recipe."
        )
    if not isinstance(found, Recipe):
        raise RecipeError(f"{where}, not a lockstep.Recipe. Write: recipe = lockstep.Recipe(...)")
    return found


def find_function(kind: str, text: str, known: Mapping[str, Callable[..., Any]]) -> Any:
    """Find the function `name`, `name(argument, key=value)`, or either with `module:name`.

    >>> find_function("schedule", "power(3)", {"power": pow})(2)
    9
    """
    name, bracket, rest = text.partition("(")
    name = name.strip()
    if ":" in name:
        function = find_object(name)
    elif name in known:
        function = known[name]
    else:
        raise RecipeError(_unknown(kind, name, known) + " Or give module:function.")
    if not callable(function):
        raise RecipeError(f"--{kind} {name} is {type(function).__name__}, not a function.")
    if not bracket:
        return function
    try:
        arguments, keywords = _read_call(f"f({rest}")
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise RecipeError(
            f"--{kind} {text!r} cannot be read. Write it as {name}(1, key=2), with plain values, "
            "in quotes for the shell."
        ) from None
    try:
        inspect.signature(function).bind_partial(*arguments, **keywords)
    except TypeError as error:
        raise RecipeError(f"--{kind} {text!r}: {name} takes other arguments: {error}.") from None
    except ValueError:
        pass  # a function without a signature
    return functools.partial(function, *arguments, **keywords)


def _read_call(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of one plain call, without running anything."""
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError("not one call")
    if any(keyword.arg is None for keyword in call.keywords):
        raise ValueError("no ** here")
    arguments = [ast.literal_eval(value) for value in call.args]
    return arguments, {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}


def find_object(text: str) -> Any:
    """Return the object `package.module:name`; also look in the current folder."""
    module_name, _, name = text.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise RecipeError(
            f"{text}: there is no module {error.name}. Run from the folder that holds it, or "
            "install it."
        ) from None
    except LockstepError:
        raise
    except (Exception, SystemExit) as error:
        raise RecipeError(raised(module_name, error)) from error
    if not hasattr(module, name):
        raise RecipeError(f"{text}: {module_name} defines no {name}.")
    return getattr(module, name)


def _load_file(path: Path) -> Any:
    if not path.is_file():
        raise RecipeError(f"{path} does not exist. Name a file that defines `recipe`.")
    name = f"lockstep_recipe_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Before it runs, so that classes which it defines can be found (by pickle, in data workers).
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except LockstepError:
        raise
    except (Exception, SystemExit) as error:
        raise RecipeError(raised(str(path), error)) from error
    return module


def _unknown(kind: str, name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"There is no {kind} {name!r}.{hint} Known: {', '.join(known)}."
