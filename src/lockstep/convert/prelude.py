"""Write the top of the new script: imports, rank and world size, and small helpers."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

import libcst as cst

from lockstep.convert.analysis.blocks import imports
from lockstep.convert.dividing import EVEN
from lockstep.convert.work import Work

_MODULES = {
    "os": "",
    "torch": "",
    "IterableDataset": "torch.utils.data",
    "nullcontext": "contextlib",
    "dist": "torch.distributed",
    "DistributedDataParallel": "torch.nn.parallel",
    "DataLoader": "torch.utils.data",
    "DistributedSampler": "torch.utils.data.distributed",
}
"""Names that the new script may import, in their order, and the module of each."""


@cache
def _templates() -> tuple[str, dict[str, str]]:
    """Return the text that every script gets, and the helpers that it may need, in their order.

    Names in braces are filled in. "all_gather tensors" replaces all_gather for values that may be
    tensors: a tensor must arrive on the GPU of the process that reads it.
    """
    text = files("lockstep.convert").joinpath("prelude.py.txt").read_text("utf-8")
    start, *parts = re.split(r"\n{3}# \[(.+)\]\n", text.rstrip())
    return start, dict(zip(parts[::2], parts[1::2], strict=True))


def write(work: Work) -> None:
    """Insert the prelude below the imports of the script."""
    work.need("os")
    missing = [
        f"{_import(name, module)}\n"
        for name, module in _MODULES.items()
        if name in work.needs and not _has(work, name, module)
    ]
    needs = set(work.needs)
    if "all_gather tensors" in needs:
        needs.discard("all_gather")
    even = EVEN.format(size="loader.batch_size", world=work.world)
    names = {
        **vars(work),
        "local": work.local_rank,
        "even": "" if work.options.scale_batch else f"    {even}\n",
        "part_of_batch": "" if work.options.scale_batch else f" // {work.world}",
    }
    start, every = _templates()
    helpers = [f"\n\n{text}\n" for name, text in every.items() if name in needs]
    text = "".join([*missing, f"\n{start}\n", *helpers])
    last = _last_import(work)
    if helpers:
        below = work.script.lines[work.script.place(last).end.line :][:2]
        text += "\n" * (2 - len([line for line in below if not line.strip()]))
    work.draft.after(last, text.format(**names).replace("    ", "\t"))


def _import(name: str, module: str) -> str:
    if name == "dist":
        return f"import {module} as {name}"
    return f"from {module} import {name}" if module else f"import {name}"


def _has(work: Work, name: str, module: str) -> bool:
    """Return whether a name at the top of the script already stands for this import."""
    path = module if name == "dist" else f"{module}.{name}".removeprefix(".")
    known = path, path.replace(".distributed.Dist", ".Dist")
    bindings = work.script.top.bindings.get(name, [])
    return any(b.kind == "import" and b.path in known for b in bindings)


def _last_import(work: Work) -> cst.CSTNode:
    """Return the last of the imports that the script begins with."""
    body = list(work.script.tree.body)
    last = body[0]
    for statement in body:
        if not isinstance(statement, cst.SimpleStatementLine | cst.Try | cst.If):
            break
        if imports(statement):
            last = statement
        elif statement is work.parts.beginning:
            break
    return last
