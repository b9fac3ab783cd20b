"""Walk a LibCST tree, and answer small questions about its nodes.

LibCST's visitors rebuild the tree as they go, and its metadata take several passes: a script of
500 lines would take almost half a second. This walk only visits nodes that have a meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import lru_cache
from typing import Any, cast

import libcst as cst

_EMPTY = cst.Module([])
EACH = -1
"""Stands for any index or key."""
_LAYOUT = (
    "whitespace", "leading", "trailing", "lpar", "rpar", "lbracket", "rbracket", "lbrace",
    "rbrace", "comma", "semicolon", "dot", "equal", "footer", "header", "indent", "newline",
    "empty_lines", "encoding", "default_", "has_",
)  # fmt: skip
"""How the names of fields begin that only describe layout."""
_fields: dict[type[cst.CSTNode], tuple[str, ...]] = {}


_nodes: dict[type[Any], bool] = {}


def _is_node(kind: type[Any]) -> bool:
    # isinstance is slow for LibCST's abstract classes.
    if kind not in _nodes:
        _nodes[kind] = issubclass(kind, cst.CSTNode)
    return _nodes[kind]


def children(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield the parts of a node that have a meaning, in the order of the text."""
    kind = type(node)
    if kind not in _fields:
        names = [field.name for field in fields(node)]
        if kind in (cst.For, cst.CompFor):
            # The iterable is evaluated first.
            names.sort(key=lambda name: name != "iter")
        _fields[kind] = tuple(name for name in names if not name.startswith(_LAYOUT))
    for name in _fields[kind]:
        value = getattr(node, name)
        if type(value) in (list, tuple):
            for item in value:
                if _is_node(type(item)):
                    yield item
        elif value is not None and _is_node(type(value)):
            yield value


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield a node and everything below it, parents first."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(list(children(node))))


def walk_shallow(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield everything below a node, except inside of functions and classes."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        below = [n for n in children(node) if type(n) not in _INNER]
        waiting.extend(reversed(below))


_INNER = {cst.FunctionDef, cst.ClassDef, cst.Lambda}


@lru_cache(maxsize=1_000)
def returned(function: cst.FunctionDef) -> list[cst.BaseExpression | None]:
    """Return what a function returns, without the functions inside it."""
    return [node.value for node in walk_shallow(function.body) if isinstance(node, cst.Return)]


def dotted(node: cst.CSTNode) -> str | None:
    """Return `a.b.c` as text; None for anything but names and dots.

    >>> dotted(cst.parse_expression("torch.nn.Linear")), dotted(cst.parse_expression("f().x"))
    ('torch.nn.Linear', None)
    """
    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    if not isinstance(node, cst.Name):
        return None
    return ".".join([node.value, *reversed(parts)])


def code(node: cst.CSTNode) -> str:
    """Return the text of a node of any script."""
    return _EMPTY.code_for_node(node)


def argument(call: cst.Call, name: str, place: int | None = None) -> cst.BaseExpression | None:
    """Return the value of an argument, by name or by position; None if it is not given in the text.

    >>> argument(cst.parse_expression("f(1, b=2)"), "b").value
    '2'
    """
    for number, arg in enumerate(call.args):
        if arg.star:
            if arg.star == "*":
                place = None
            continue
        if arg.keyword is not None:
            if arg.keyword.value == name:
                return arg.value
        elif number == place:
            return arg.value
    return None


def spreads(call: cst.Call) -> bool:
    """Return whether some arguments come from a `*list` or a `**dict`."""
    return any(arg.star for arg in call.args)


def constant(node: cst.CSTNode | None) -> object:
    """Return the value of a literal, or `...` for anything else.

    >>> constant(cst.parse_expression("-0.5")), constant(cst.parse_expression("x"))
    (-0.5, Ellipsis)
    """
    if isinstance(node, cst.Integer | cst.Float):
        return node.evaluated_value
    if isinstance(node, cst.SimpleString):
        text = node.value
        if text[0] in "'\"" and "\\" not in text and text[1:2] != text[0]:
            return text[1:-1]
        return node.evaluated_value
    if isinstance(node, cst.ConcatenatedString):
        return node.evaluated_value
    if isinstance(node, cst.Name) and node.value in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[node.value]
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        value = constant(node.expression)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -value
    return ...


def parts(node: cst.CSTNode, key: int | str) -> list[cst.BaseExpression]:
    """Return the parts of a literal that an index or a key takes; `EACH` takes all.

    >>> parts(cst.parse_expression("{'a': 1, 'b': 2}"), "b")[0].value
    '2'
    """
    if isinstance(node, cst.Tuple | cst.List) and isinstance(key, int):
        values = [e.value for e in node.elements if not isinstance(e, cst.StarredElement)]
        if key == EACH:
            return values
        before = node.elements[: key + 1]
        if any(isinstance(e, cst.StarredElement) for e in before):
            return []
        return [e.value for e in before[key:]]
    if isinstance(node, cst.Dict):
        pairs = [e for e in node.elements if isinstance(e, cst.DictElement)]
        return [e.value for e in pairs if key in (EACH, constant(e.key))]
    if isinstance(node, cst.DictComp):
        return [node.value]
    if isinstance(node, cst.ListComp | cst.GeneratorExp) and isinstance(key, int):
        return [node.elt]
    if isinstance(node, cst.Call) and dotted(node.func) == "dict":
        return [a.value for a in node.args if a.keyword and key in (EACH, a.keyword.value)]
    return []


def statements(body: cst.BaseSuite | cst.Module) -> list[cst.CSTNode]:
    """Return the statements of a block; those on one line one by one."""
    found: list[cst.CSTNode] = []
    for item in body.body:
        if isinstance(item, cst.SimpleStatementLine):
            found.extend(item.body)
        else:
            found.append(cast(cst.CSTNode, item))
    return found
