"""Decide how a program is started: forked from a process that has torch, or in a new interpreter.

A fork is many times cheaper, but torch is imported before the script's first line, all ranks share
one seed for the hashes of strings, and modules of the server hide modules beside the script. The
script gets a new interpreter if it could notice any of this, or runs code that the rule cannot see.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from lockstep.processes import forked
from lockstep.world import gpus_here, is_read_at_import

STARTS_PROCESSES = {
    *("spawn", "forkserver", "set_start_method", "get_context", "start_processes"),
    *("elastic_launch", "notebook_launcher", "debug_launcher", "execv", "execve", "execvp"),
}
"""Names and texts by which a script chooses how its own processes start."""
INSPECTS = {
    *("meta_path", "path_hooks", "path_importer_cache", "orig_argv", "getppid", "getsid"),
    *("_getframe", "currentframe", "getouterframes", "walk_stack"),
    *("extract_stack", "format_stack", "print_stack"),
    *("get_objects", "get_referrers", "tracemalloc"),
}
"""Names by which a script sees how it was started, or what was imported before it."""
RUNS_OTHER_CODE = {
    *("exec", "__import__", "runpy", "run_path", "run_module", "exec_module", "reload"),
    *("spec_from_file_location", "SourceFileLoader", "addsitedir"),
}
"""Names by which a script runs code that the rule does not see."""
OF_SYS = {"modules", "path"}
"""What a script must not look at in `sys`: other names mean other things elsewhere."""
FRAMEWORKS = {"lightning", "pytorch_lightning", "ray", "deepspeed", "horovod"}
"""Libraries that start processes by themselves."""
NOT_LINUX = "only Linux lets a process with torch fork safely"
HASHED = {"set", "frozenset", "hash"}
ORDERLESS = {"sorted", "len", "sum", "min", "max", "any", "all", "bool", "set", "frozenset"}
"""Functions whose result does not depend on the order of a set."""


def reason_for_fresh(script: Path, env: dict[str, str], preload: Sequence[str] = ()) -> str | None:
    """Return why a script needs a new interpreter, or None if it may be forked."""
    if sys.platform != "linux":
        return NOT_LINUX
    try:
        trees = list(_program(script))
    except (OSError, SyntaxError, ValueError):
        return "the script cannot be read"
    for tree in trees:
        reason = _reason(tree)
        if reason is not None:
            return reason
    beside = script.resolve().parent
    names = {p.stem for p in beside.glob("*.py")}
    names |= {p.parent.name for p in beside.glob("*/__init__.py")}
    return forked.obstacle(env, preload, frozenset(names))


def reason_for_fresh_module(env: dict[str, str]) -> str | None:
    """Return why a module of lockstep needs a new interpreter, or None if it may be forked."""
    if sys.platform != "linux":
        return NOT_LINUX
    if gpus_here():
        return "CUDA does not work in a forked process"
    return forked.obstacle(env, (), frozenset())


def imports(script: Path, package: str) -> bool:
    """Return whether a script, or a module beside it that it imports, imports a package."""
    try:
        return any(
            _imports(node, {package}) for tree in _program(script) for node in ast.walk(tree)
        )
    except (OSError, SyntaxError, ValueError):
        return False


def _program(script: Path) -> Iterator[ast.Module]:
    """Yield the script and the modules beside it that it imports, directly or not."""
    seen: set[Path] = set()
    waiting = [script.resolve()]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        tree = ast.parse(path.read_bytes())
        yield tree
        waiting += _imported(tree, path, script.resolve().parent)


def _imported(tree: ast.Module, path: Path, root: Path) -> Iterator[Path]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            base = root
        elif isinstance(node, ast.Call) and _named(node.func) == "import_module":
            names = [_named(argument) for argument in node.args[:1]]
            base = root
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [module, *(f"{module}.{alias.name}".lstrip(".") for alias in node.names)]
            base = path.parents[min(node.level, len(path.parents)) - 1] if node.level else root
        else:
            continue
        for name in names:
            place = base.joinpath(*name.split(".")) if name else base
            for found in (place.with_suffix(".py"), place / "__init__.py"):
                if found.is_file():
                    yield found.resolve()


def _reason(tree: ast.Module) -> str | None:
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    first_torch = min(
        (node.lineno for node in tree.body if _imports(node, {"torch"})), default=sys.maxsize
    )
    for node in ast.walk(tree):
        if _named(node) in STARTS_PROCESSES:
            return f"line {_line(node)} chooses how processes are started"
        if _named(node) in INSPECTS or _looks_into_sys(node):
            return f"line {_line(node)} looks at how Python was started"
        if _named(node) in RUNS_OTHER_CODE or _imports_by_variable(node):
            return f"line {_line(node)} runs code that is chosen while the script runs"
        if _imports(node, FRAMEWORKS):
            return f"line {_line(node)} imports a framework that starts processes"
        if _sets_environment(node) and _line(node) < first_torch:
            return f"line {_line(node)} sets the environment before torch is imported"
        if _depends_on_hashes(node, parents):
            return f"line {_line(node)} uses a set or hash, whose order differs between processes"
    return None


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def _named(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.alias):
        return node.name.rpartition(".")[2]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ""


def _looks_into_sys(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        owner = _named(node.value)
        hidden = node.attr in OF_SYS and owner in ("sys", "_sys")
        return hidden or (node.attr == "stack" and owner == "inspect")
    if isinstance(node, ast.ImportFrom):
        return node.module == "sys" and any(alias.name in OF_SYS for alias in node.names)
    if isinstance(node, ast.Import):
        return any(a.name == "sys" and a.asname not in (None, "_sys") for a in node.names)
    return isinstance(node, ast.Constant) and str(node.value).startswith("/proc/self")


def _imports_by_variable(node: ast.AST) -> bool:
    """Return whether a node imports a module whose name is not written there."""
    if not isinstance(node, ast.Call) or _named(node.func) != "import_module":
        return False
    return not (node.args and isinstance(node.args[0], ast.Constant))


def _imports(node: ast.AST, packages: set[str]) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] in packages for alias in node.names)
    if isinstance(node, ast.ImportFrom) and not node.level:
        return (node.module or "").partition(".")[0] in packages
    return False


def _sets_environment(node: ast.AST) -> bool:
    """Return whether a node sets a variable that is read at import, or one that is not known."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return _is_environ(node.value) and _counts(node.slice)
    if isinstance(node, ast.AugAssign):
        return _is_environ(node.target)
    if isinstance(node, ast.alias):
        # Under another name, changes of it would not be seen.
        return node.name in ("environ", "environb", "putenv") and node.asname is not None
    if isinstance(node, ast.Assign | ast.NamedExpr):
        return _is_environ(node.value)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr in ("putenv", "unsetenv", "setdefault", "pop", "__setitem__"):
        ours = _is_environ(node.func.value) or node.func.attr.endswith("env")
        return ours and bool(node.args) and _counts(node.args[0])
    if node.func.attr == "update" and _is_environ(node.func.value):
        given = [keyword.arg for keyword in node.keywords]
        return bool(node.args) or any(name is None or is_read_at_import(name) for name in given)
    return False


def _is_environ(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and _named(node) in ("environ", "environb")


def _counts(key: ast.expr) -> bool:
    known = isinstance(key, ast.Constant) and isinstance(key.value, str)
    return not known or is_read_at_import(key.value)  # type: ignore[attr-defined]


def _is_view(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _named(node.func) in ("keys", "items")


def _depends_on_hashes(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Return whether a node makes a set, or a hash, and more than its members may count."""
    if isinstance(node, ast.Call):
        made = isinstance(node.func, ast.Name) and node.func.id in HASHED
    elif isinstance(node, ast.BinOp):
        # Views of dicts give sets: a.keys() - b.keys().
        made = any(_is_view(side) for side in (node.left, node.right))
    else:
        made = isinstance(node, ast.Set | ast.SetComp)
    if not made:
        return False
    parent = parents.get(node)
    if isinstance(parent, ast.Compare):
        return False
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
        return not (parent.func.id in ORDERLESS and node in parent.args)
    return True
