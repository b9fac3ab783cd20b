"""Without workers, the process that feeds the GPU also reads and decodes, and the GPU waits."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.script import Origin, Script
from lockstep.source.training import Training
from lockstep.source.tree import argument

_READS = re.compile(
    r"open|.*\.(imread|imdecode|read_image|decode_image|pil_loader|default_loader|read_parquet|"
    r"read_csv|read_video|Image\.open|numpy\.load|torch\.load|json\.load|pickle\.load|"
    r"torchaudio\.load|librosa\.load|soundfile\.read)|(numpy|torch|torchaudio|librosa|json|pickle)\.load"
    r"|soundfile\.read"
)
_WORKS = re.compile(r"(self\.)?_?(\w*transforms?|augment\w*|\w*loader)")
_PARTS = (
    "torch.utils.data.Subset",
    "torch.utils.data.random_split",
    "torch.utils.data.ConcatDataset",
)
_FOLDERS = re.compile(r"torchvision\.datasets\.\w+")


def look(training: Training) -> Iterator[Found]:
    """Find training loaders without workers over data whose items are expensive."""
    for loader in training.loaders:
        if not loader.trains or loader.unclear or _prefetched(training):
            continue
        # An unknown number of workers may be more than none.
        if any(value != 0 for value in loader.constants("num_workers")):
            continue
        kinds = [_cost(training, origin) for origin in loader.origins("dataset")]
        if kinds and all(kinds):
            yield Found(
                *loader.place,
                f"without workers each rank {kinds[0]} between its steps, while its GPU waits",
                certain=False,
            )


def _prefetched(training: Training) -> bool:
    """Return whether something else reads ahead, such as a thread around the loader."""
    text = "\n".join(script.text for script in training.project.scripts)
    return re.search(r"prefetch|BackgroundGenerator", text, re.I) is not None


def _cost(training: Training, origin: Origin, depth: int = 3) -> str | None:
    """Return what an item of this data set costs, in words; None if it is cheap or unknown."""
    call = origin.node
    if not isinstance(call, cst.Call) or not depth:
        return None
    name = training.project.name(origin.script, call.func) or ""
    if name in _PARTS and call.args:
        first: cst.CSTNode = call.args[0].value
        if isinstance(first, cst.List) and first.elements:
            first = first.elements[0].value
        inner = training.project.origins(origin.script, first)
        costs = [_cost(training, o, depth - 1) for o in inner]
        return costs[0] if costs and all(costs) else None
    if _FOLDERS.fullmatch(name):
        given = argument(call, "transform")
        return "decodes and transforms its images" if given is not None else None
    made = training.project.class_named(origin.script, call.func)
    return _class_cost(training, *made) if made is not None else None


def _class_cost(training: Training, script: Script, data: cst.ClassDef) -> str | None:
    if "cache" in script.code(data).lower():
        return None
    found = None
    for method in script.methods(data, "__getitem__"):
        for where, node in training.project.calls_below(script, method.body):
            if _READS.fullmatch(training.project.title(where, node.func)):
                return "reads its samples from files"
            if _WORKS.fullmatch(where.code(node.func)):
                found = "transforms its samples"
    return found
