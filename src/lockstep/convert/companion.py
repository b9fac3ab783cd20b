"""Write the module with the helper functions that a converted script imports."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

NAMES = ("parallel", "data_parallel", "on_all_gpus")
"""Names for the module; the first that the project does not use is taken."""
CONSTANTS = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
DOC = '''"""Train on several GPUs: torchrun --nproc-per-node N SCRIPT. Plain python works as before.

lockstep convert wrote this file. It is plain PyTorch, and yours to change.
"""
'''
_OTHERWISE = (("shared", "plain"), ("uneven", "units"), ("sums", "means"), ("calls", "passes"))
"""Flags, and those that hold without them."""
_SECTION = re.compile(r"^# \[(.+)\]\n", re.MULTILINE)
_CONDITION = re.compile(r"  # if (\w+)$")
_MODULES = (
    "atexit", "collections", "contextlib", "copy", "gc", "itertools", "logging", "math",
    "multiprocessing", "os", "random", "sys",
)  # fmt: skip
_IMPORTS = {
    "np": "import numpy as np",
    "torch": "import torch",
    "dist": "import torch.distributed as dist",
    "DistributedDataParallel": "from torch.nn.parallel import DistributedDataParallel",
    "IterableDataset": "from torch.utils.data import IterableDataset",
    "get_worker_info": "from torch.utils.data import get_worker_info",
}


def written(needed: Iterable[str], flags: set[str], options: str = "") -> str:
    """Return the module with the helpers that are needed, and with those that they need.

    Lines of the text that end in `# if flag` stay if the flag is given: `np`, `logging`, `tqdm` and
    `wandb` if the script uses them, `alike` if a stream draws from torch, `random` and `numpy` if
    their numbers differ between processes while they train, `norms` to synchronise batch norm,
    `looks` if training data are also looked at without training, `uneven` if a batch may be of any
    size, `together` if a step takes several batches, `calls` if the script makes batches one by
    one, `norms_weigh` if batch norm mixes the gradients of processes, `sums` if losses are sums
    over the batch. With `grows`, the batch grows with the processes. `options` goes to DDP, behind
    the model.
    """
    sections = _sections()
    flags = flags | ({"weighs"} if flags & {"uneven", "together"} else {"equal"})
    if "weighs" in flags and "norms_weigh" not in flags:
        flags = flags | {"hooks"}
    for one, other in _OTHERWISE:
        flags = flags if one in flags else flags | {other}
    names = {"start", "end", "same"}
    waiting = ["same", *(name for name in needed if name not in CONSTANTS)]
    while waiting:
        name = waiting.pop()
        name = _variant(name, flags)
        names.add(name)
        waiting += [other for other in _helpers_in(sections[name], flags) if other not in names]
    flags = flags | {"wraps"} if "_wrapped" in names else flags
    bodies = [sections[name] for name in sections if name in names]
    text = "\n\n\n".join(_fitted(body, flags) for body in bodies).replace("{options}", options)
    used = [name for name in _MODULES if re.search(rf"\b{name}\.", text)]
    imports = "".join(f"import {name}\n" for name in used)
    others = "".join(
        f"{line}\n" for name, line in _IMPORTS.items() if re.search(rf"\b{name}\b", text)
    )
    return f"{DOC}\n{imports}\n{others}\n{text}\n"


def _fitted(text: str, flags: set[str]) -> str:
    """Take out the lines that this script does not need."""
    lines = []
    for line in text.splitlines():
        condition = _CONDITION.search(line)
        if condition is None or condition[1] in flags:
            lines.append(_CONDITION.sub("", line))
    return "\n".join(lines)


def _helpers_in(text: str, flags: set[str]) -> list[str]:
    words = set(re.findall(r"\b\w+\b", _fitted(text, flags)))
    return [_variant(name, flags) for word, name in _owners().items() if word in words]


def _variant(name: str, flags: set[str]) -> str:
    """Return the section that defines a helper."""
    if name == "_Parts" and "grows" in flags:
        return "_Parts grown"
    if name == "_Stream" and "alike" in flags:
        return "_Stream alike"
    return "ddp sync" if name == "ddp" and "sync" in flags else name


@cache
def _owners() -> dict[str, str]:
    """Return for each function, class and variable the section that defines it."""
    found: dict[str, str] = {}
    for name, body in _sections().items():
        for word in re.findall(r"^(?:def |class )?(\w+)(?= = |\(|:)", body, re.MULTILINE):
            found.setdefault(word, name)
    return found


@cache
def _sections() -> dict[str, str]:
    """Return the text of each section by its name."""
    text = Path(__file__).with_name("companion.py.txt").read_text()
    _, *rest = _SECTION.split(text)
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return {name: body.strip("\n") for name, body in pairs}
