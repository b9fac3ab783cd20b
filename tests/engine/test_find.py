"""From what was typed to what is meant: found, or refused with what to type instead."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest

import lockstep
from lockstep.engine.recipe.builtin import DIGITS, RECIPES
from lockstep.engine.recipe.known import KNOWN
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.recipe.resolve import find_function, find_object, find_recipe
from lockstep.errors import PlanError, RecipeError

GOOD = """
from dataclasses import replace
from lockstep.engine.recipe.builtin import DIGITS
recipe = replace(DIGITS, name="mine", epochs=3)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder; what was imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def write(folder: Path, content: str, name: str = "mine.py") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return str(path)


# Recipes


@pytest.mark.parametrize("name", RECIPES)
def test_a_built_in_recipe_is_found_by_its_name(name: str):
    assert find_recipe(name) is RECIPES[name]


def test_an_unknown_recipe_is_refused_and_the_nearest_suggested():
    with pytest.raises(RecipeError) as error:
        find_recipe("digit")
    message = str(error.value)
    assert "There is no recipe 'digit'. Did you mean digits?" in message
    assert all(name in message for name in RECIPES)
    assert message.endswith("Or give a file.py, or module:recipe.")


def test_a_name_like_no_other_gets_no_suggestion():
    with pytest.raises(RecipeError) as error:
        find_recipe("zzzz")
    assert "Did you mean" not in str(error.value)
    assert "Known: cifar10, cifar10-fast, digits" in str(error.value)


def test_a_recipe_is_found_in_a_file(folder: Path):
    found = find_recipe(write(folder, GOOD))
    assert isinstance(found, Recipe)
    assert (found.name, found.epochs) == ("mine", 3)


def test_a_relative_path_and_a_folder_with_a_space_will_do(folder: Path):
    write(folder, GOOD, "my recipes/first one.py")
    assert find_recipe("my recipes/first one.py").name == "mine"


def test_a_file_may_import_what_lies_beside_it(folder: Path):
    write(folder, GOOD, "deep/beside_it.py")
    path = write(folder, "from beside_it import recipe\n", "deep/mine.py")
    assert find_recipe(path).name == "mine"


def test_a_file_that_changed_is_read_anew(folder: Path):
    assert find_recipe(write(folder, GOOD)).epochs == 3
    # Another length, too: Python's cache goes by size and whole seconds.
    assert find_recipe(write(folder, GOOD.replace("epochs=3", "epochs=40"))).epochs == 40


def test_a_recipe_is_found_in_a_module_beside_the_user(folder: Path):
    write(folder, GOOD, "my_pack/__init__.py")
    write(folder, GOOD.replace("mine", "inner"), "my_pack/inner.py")
    assert find_recipe("my_pack:recipe").name == "mine"
    assert find_recipe("my_pack.inner:recipe").name == "inner"


def test_a_missing_file_is_refused():
    with pytest.raises(RecipeError, match=r"nowhere/mine\.py does not exist. Name a file"):
        find_recipe("nowhere/mine.py")


def test_a_folder_named_like_a_file_is_refused(folder: Path):
    (folder / "mine.py").mkdir()
    with pytest.raises(RecipeError, match="does not exist"):
        find_recipe("mine.py")


def test_a_file_that_raises_is_refused_with_its_own_line(folder: Path):
    path = write(folder, "first = 1\nsecond = first / 0\n")
    with pytest.raises(RecipeError) as error:
        find_recipe(path)
    message = str(error.value)
    assert f"{path} raised ZeroDivisionError: division by zero" in message
    assert f"line 2 of {path}: second = first / 0" in message
    assert "find.py" not in message


def test_the_line_is_the_users_also_if_a_library_raised(folder: Path):
    path = write(folder, "import json\n\nnumbers = json.loads('{')\n")
    with pytest.raises(RecipeError) as error:
        find_recipe(path)
    assert f"{path} raised JSONDecodeError" in str(error.value)
    assert f"line 3 of {path}: numbers = json.loads('{{')" in str(error.value)


def test_a_syntax_error_is_refused_with_its_line(folder: Path):
    path = write(folder, "first = 1\nrecipe = = 2\n")
    with pytest.raises(RecipeError, match=r"mine\.py raised SyntaxError.*line 2"):
        find_recipe(path)


def test_a_file_that_imports_what_is_not_there_is_refused(folder: Path):
    path = write(folder, "import no_such_package\n")
    with pytest.raises(RecipeError, match="no_such_package"):
        find_recipe(path)


@pytest.mark.parametrize("code", ["", "0", "3", "'bye'"])
def test_a_file_that_exits_is_refused_and_does_not_end_us(folder: Path, code: str):
    path = write(folder, f"import sys\nsys.exit({code})\n")
    with pytest.raises(RecipeError, match=r"mine\.py raised SystemExit(.|\n)*line 2"):
        find_recipe(path)


def test_a_module_that_exits_is_refused_and_does_not_end_us(folder: Path):
    write(folder, "import sys\nsys.exit(3)\n", "exiting_module.py")
    with pytest.raises(RecipeError, match="exiting_module raised SystemExit"):
        find_recipe("exiting_module:recipe")


def test_errors_of_lockstep_itself_pass_as_they_are(folder: Path):
    source = "from lockstep.errors import PlanError\nraise PlanError('do this instead')\n"
    for text in (
        write(folder, source),
        write(folder, source, "own_error.py") and "own_error:recipe",
    ):
        with pytest.raises(PlanError, match=r"^do this instead$"):
            find_recipe(text)


def test_a_file_without_a_recipe_is_refused(folder: Path):
    with pytest.raises(RecipeError, match=r"does not define `recipe`.*Write: recipe = lockstep"):
        find_recipe(write(folder, "recipes = 3\n"))


@pytest.mark.parametrize("value", ["3", "'digits'", "dict(name='mine')", "lambda: 3"])
def test_a_file_whose_recipe_is_something_else_is_refused(folder: Path, value: str):
    with pytest.raises(RecipeError, match=r"not a lockstep\.Recipe"):
        find_recipe(write(folder, f"recipe = {value}\n"))


def test_a_module_whose_recipe_is_something_else_is_refused(folder: Path):
    write(folder, "recipe = 3\n", "other_thing.py")
    with pytest.raises(RecipeError, match=r"other_thing:recipe is int, not a lockstep\.Recipe"):
        find_recipe("other_thing:recipe")


@pytest.mark.parametrize("text", ["no_such_module:recipe", ":recipe", "..up:recipe", "json:recipe"])
def test_modules_and_names_that_are_not_there_are_refused(folder: Path, text: str):
    with pytest.raises(RecipeError):
        find_recipe(text)


def test_a_module_that_raises_is_refused_with_its_line(folder: Path):
    write(folder, "first = 1\nfirst / 0\n", "raising_module.py")
    with pytest.raises(RecipeError, match=r"ZeroDivisionError(.|\n)*line 2 of .*raising_module.py"):
        find_recipe("raising_module:recipe")


# Functions


def test_a_name_is_the_function_itself():
    assert find_function("schedule", "cosine", KNOWN["schedule"]) is KNOWN["schedule"]["cosine"]


@pytest.mark.parametrize(
    ("text", "arguments", "keywords"),
    [
        ("f(1)", (1,), {}),
        ("f(1, 2.5, key='a')", (1, 2.5), {"key": "a"}),
        ("f(-3, key=-1e-3)", (-3,), {"key": -1e-3}),
        (
            "f(key=(1, [2], {'a': None}), other=True)",
            (),
            {"key": (1, [2], {"a": None}), "other": True},
        ),
        ("f()", (), {}),
        (" f (1) ", (1,), {}),
        ("f(')')", (")",), {}),
    ],
)
def test_arguments_in_brackets_are_fixed(text: str, arguments: tuple, keywords: dict):
    def f(*given, **named):
        return given, named

    found = find_function("model", text, {"f": f})
    assert isinstance(found, functools.partial)
    assert found() == (arguments, keywords)


def test_a_function_of_a_module_is_found_with_and_without_arguments(folder: Path):
    write(folder, "def double(x, by=2):\n    return x * by\n", "my_functions.py")
    assert find_function("loss", "my_functions:double", {})(4) == 8
    assert find_function("loss", "my_functions:double(by=3)", {})(4) == 12


def test_an_unknown_function_is_refused_and_the_nearest_suggested():
    with pytest.raises(RecipeError) as error:
        find_function("schedule", "cosin(floor=1)", KNOWN["schedule"])
    assert "There is no schedule 'cosin'. Did you mean cosine?" in str(error.value)
    assert str(error.value).endswith("Or give module:function.")


def test_a_name_that_is_no_function_is_refused(folder: Path):
    write(folder, "number = 3\n", "my_numbers.py")
    with pytest.raises(RecipeError, match="--loss my_numbers:number is int, not a function"):
        find_function("loss", "my_numbers:number", {})


@pytest.mark.parametrize(
    "text",
    [
        "f(",
        "f(1",
        "f(1))",
        "f(1) + 2",
        "f(1, key=)",
        "f(key=1, 2)",
        "f(,)",
        "f(x)",
        "f(key=x)",
        "f(1)(2)",
        "f(key=1)(2)",
        "f(1).other(2)",
        "f(1)[0](2)",
        "f(*[1])",
        "f(**{'a': 1})",
        "f({[1]: 2})",
        "f(1); g(2)",
        "f(1 if 2 else 3)",
        "f(\x00)",
    ],
)
def test_an_expression_that_cannot_be_read_is_refused_with_the_right_form(text: str):
    with pytest.raises(RecipeError, match=r"cannot be read. Write it as f\(1, key=2\)"):
        find_function("model", text, {"f": dict})


@pytest.mark.parametrize(
    "expression",
    [
        "print(1)",
        "__import__('os').abort()",
        "(lambda: 1)()",
        "[x for x in (1, 2)]",
        "().__class__",
        "f'{1}'",
        "2 ** 99",
        "x := 1",
    ],
)
@pytest.mark.parametrize("form", ["f({})", "f(key={})", "f([{}])"])
def test_expressions_are_refused_and_not_evaluated(expression: str, form: str):
    with pytest.raises(RecipeError, match="cannot be read"):
        find_function("model", form.format(expression), {"f": dict})


def test_an_object_is_found_by_module_and_name():
    assert find_object("lockstep.engine.recipe.builtin:DIGITS") is DIGITS
    with pytest.raises(RecipeError, match=r"lockstep\.engine\.recipe\.builtin defines no nothing"):
        find_object("lockstep.engine.recipe.builtin:nothing")


@pytest.mark.parametrize("name", ["Muon", "LARS", "LARC", "LAMB", "NovoGrad"])
def test_an_optimizer_of_ours_is_named_by_a_flag_and_in_a_file(name: str):
    public = getattr(lockstep.optimizers, name)
    assert find_function("optimizer", name.lower(), KNOWN["optimizer"]) is public
    found = find_function("optimizer", f"{name.lower()}(lr=0.5)", KNOWN["optimizer"])
    assert found.func is public
