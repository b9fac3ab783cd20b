"""Write the top of the new script: imports, rank and world size, and small helpers."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.analysis.blocks import imports
from lockstep.convert.dividing import EVEN
from lockstep.convert.work import Work

IMPORTS = {
    "os": ("os", "import os"),
    "torch": ("torch", "import torch"),
    "IterableDataset": (
        "torch.utils.data.IterableDataset",
        "from torch.utils.data import IterableDataset",
    ),
    "nullcontext": ("contextlib.nullcontext", "from contextlib import nullcontext"),
    "dist": ("torch.distributed", "import torch.distributed as dist"),
    "DistributedDataParallel": (
        "torch.nn.parallel.DistributedDataParallel",
        "from torch.nn.parallel import DistributedDataParallel",
    ),
    "DataLoader": ("torch.utils.data.DataLoader", "from torch.utils.data import DataLoader"),
    "DistributedSampler": (
        "torch.utils.data.distributed.DistributedSampler",
        "from torch.utils.data.distributed import DistributedSampler",
    ),
}


_START = """
# Set by torchrun; without it, this is the only process.
{rank} = int(os.environ.get("RANK", 0))
{local} = int(os.environ.get("LOCAL_RANK", 0))
{world} = int(os.environ.get("WORLD_SIZE", 1))
"""
_HELPERS = {
    "all_sum": '''
def {all_sum}(value):
    """Add up a number or a tensor over all processes."""
    if {world} == 1:
        return value
    total = torch.as_tensor(value).detach().double().cpu()
    dist.all_reduce(total)
    if torch.is_tensor(value):
        return total.to(value)
    return int(total) if isinstance(value, int) and total % 1 == 0 else total.item()
''',
    "all_gather": '''
def {all_gather}(values):
    """Return the values of all processes, in the order of the batches."""
    if {world} == 1:
        return values
    parts = [None] * {world}
    dist.all_gather_object(parts, values)
    return [parts[i % {world}][i // {world}] for i in range(sum(map(len, parts)))]
''',
    # A tensor must arrive on the GPU of the process that reads it.
    "all_gather tensors": '''
def {all_gather}(values):
    """Return the values of all processes, in the order of the batches."""
    if {world} == 1:
        return values
    parts = [None] * {world}
    values = [(v.cpu(), v.is_cuda) if torch.is_tensor(v) else (v, False) for v in values]
    dist.all_gather_object(parts, values)
    values = [parts[i % {world}][i // {world}] for i in range(sum(map(len, parts)))]
    return [v.cuda() if on_gpu else v for v, on_gpu in values]
''',
    "mean_of_all": '''
def {mean_of_all}(mean, count):
    """Weight the mean of this process, so that DDP averages over all items."""
    if {world} == 1 or not mean.requires_grad:
        return mean
    count = torch.as_tensor(count, device=mean.device)
    total = count.clone()
    dist.all_reduce(total)
    return torch.where(count > 0, mean, 0.0) * (count * {world} / total)
''',
    "bare": '''
def {bare}(model):
    """Return the model without DDP around it."""
    return model.module if isinstance(model, DistributedDataParallel) else model
''',
    "Part": '''
class {part}(IterableDataset):
    """The samples of a stream that belong to this process."""

    def __init__(self, stream):
        self.stream = stream

    def __iter__(self):
        # Every process gets as many: the rest at the end is dropped.
        for samples in zip(*[iter(self.stream)] * {world}):
            yield samples[{rank}]
''',
    "Share": '''
class {share}:
    """The samples of this process, in an order that the first process draws."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __len__(self):
        return len(self.sampler) // {world}

    def __iter__(self):
        if {world} == 1:
            return iter(self.sampler)
        order = [list(self.sampler) if {rank} == 0 else None]
        dist.broadcast_object_list(order)
        return iter(order[0][{rank}::{world}][: len(self)])
''',
    "divided": '''
def {divided}(loader):
    """Return a loader of the same kind for this process's part of every batch."""
    if {world} == 1:
        return loader
{even}    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size{part_of_batch},
        sampler={share}(loader.sampler),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=loader.drop_last,
        worker_init_fn=loader.worker_init_fn,
        persistent_workers=loader.persistent_workers,
    )
''',
}
"""Helpers that the new script may define, in their order; names in braces are filled in."""


def write(work: Work) -> None:
    """Insert the prelude below the imports of the script."""
    work.need("os")
    missing = [
        f"{line}\n"
        for name, (path, line) in IMPORTS.items()
        if name in work.needs and not _has(work, name, path)
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
    helpers = [text for name, text in _HELPERS.items() if name in needs]
    text = "".join([*missing, _START, *(f"\n{helper}" for helper in helpers)])
    last = _last_import(work)
    if helpers:
        below = work.script.lines[work.script.place(last).end.line :][:2]
        text += "\n" * (2 - len([line for line in below if not line.strip()]))
    work.draft.after(last, text.format(**names).replace("    ", "\t"))


def _has(work: Work, name: str, path: str) -> bool:
    """Return whether a name at the top of the script already stands for this import."""
    bindings = work.script.top.bindings.get(name, [])
    return any(
        b.kind == "import" and b.path in (path, path.replace(".distributed.Dist", ".Dist"))
        for b in bindings
    )


def _last_import(work: Work) -> cst.CSTNode:
    """Return the last of the imports that the script begins with."""
    body = list(work.script.tree.body)
    last = body[0]
    for statement in body:
        if isinstance(statement, cst.SimpleStatementLine | cst.Try | cst.If):
            if imports(statement):
                last = statement
            elif statement is work.parts.beginning:
                break
        else:
            break
    return last
