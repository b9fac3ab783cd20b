"""The pages of the optimizers: one skeleton, snippets that run, flags that name what is meant."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import lockstep
from lockstep.engine.recipe.known import KNOWN
from lockstep.engine.recipe.resolve import find_function
from lockstep.scaling.optimizers import optimizers
from lockstep.scaling.rates import rules

FOLDER = Path(__file__).parents[2] / "docs" / "scaling"
NAMES = {
    name: kind.__name__
    for name, kind in optimizers().items()
    if kind.__module__.startswith("lockstep.")
}
SKELETON = [
    "What it is",
    "When to use it",
    "Equation",
    "Example",
    "Defaults and exclusions",
    "Source",
]

PAGES = {"adam_sqrt_rule": "adam-rule"}
RULES = [PAGES.get(n, n.replace("_", "-")) for n in vars(rules) if n.endswith("_rule")]
RULES.append("adascale")
every_optimizer = pytest.mark.parametrize("page", NAMES)


def text(page: str) -> str:
    return (FOLDER / f"{page}.md").read_text()


@every_optimizer
def test_a_page_has_the_skeleton_and_is_in_the_index(page: str):
    assert re.findall(r"^## (.*)$", text(page), re.MULTILINE) == SKELETON
    assert f"({page}.md)" in (FOLDER / "README.md").read_text()


@every_optimizer
def test_the_snippet_of_a_page_trains(page: str):
    (snippet,) = re.findall(r"```python\n(.*?)```", text(page), re.DOTALL)
    names: dict[str, Any] = {}
    torch.manual_seed(0)
    exec(snippet, names)
    assert isinstance(names["optimizer"], getattr(lockstep.optimizers, NAMES[page]))
    assert all(p.isfinite().all() for p in names["model"].parameters())


@every_optimizer
def test_the_flag_of_a_page_builds_the_optimizer(page: str):
    (flag,) = re.findall(r"--optimizer '(.*?)'", text(page))
    found = find_function("optimizer", flag, KNOWN["optimizer"])
    optimizer = found([torch.nn.Parameter(torch.ones(2, 3, 1, 1))], lr=0.1)
    assert isinstance(optimizer, getattr(lockstep.optimizers, NAMES[page]))


@every_optimizer
def test_the_defaults_of_a_page_are_those_of_the_code(page: str):
    (line,) = re.findall(r"^## Defaults and exclusions\n\n`(.*)`\.$", text(page), re.MULTILINE)
    written = eval(f"dict({line})")
    code = getattr(lockstep.optimizers, NAMES[page]).__init__.__kwdefaults__
    code = code | {"lr": getattr(lockstep.optimizers, NAMES[page]).__init__.__defaults__[0]}
    assert written == code


@pytest.mark.parametrize("page", RULES)
def test_the_page_of_a_rule_has_the_skeleton_and_is_in_the_index(page: str):
    expected = [part for part in SKELETON if part != "Defaults and exclusions"]
    assert re.findall(r"^## (.*)$", text(page), re.MULTILINE) == expected
    assert f"({page}.md)" in (FOLDER / "README.md").read_text()


@pytest.mark.parametrize("page", RULES[:-1])
def test_the_snippet_of_a_rule_runs(page: str):
    (snippet,) = re.findall(r"```python\n(.*?)```", text(page), re.DOTALL)
    names: dict[str, Any] = {}
    exec(snippet, names)
    assert names.get("rate", 1.0) > 0.0
