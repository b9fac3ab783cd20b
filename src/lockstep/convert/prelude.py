"""Write the top of the new script: imports, rank and world size, and small helpers."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.analysis.blocks import imports
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


def write(work: Work) -> None:
    """Insert the prelude below the imports of the script."""
    work.need("os")
    missing = [
        line
        for name, (path, line) in IMPORTS.items()
        if name in work.needs and not _has(work, name, path)
    ]
    last = _last_import(work)
    rank, local, world = work.rank, work.local_rank, work.world
    lines = [
        *missing,
        "",
        "# Set by torchrun; without it, this is the only process.",
        f'{rank} = int(os.environ.get("RANK", 0))',
        f'{local} = int(os.environ.get("LOCAL_RANK", 0))',
        f'{world} = int(os.environ.get("WORLD_SIZE", 1))',
    ]
    if "all_sum" in work.needs:
        lines += [
            "",
            "",
            f"def {work.all_sum}(value):",
            '\t"""Add up a number or a tensor over all processes."""',
            f"\tif {world} == 1:",
            "\t\treturn value",
            "\ttotal = torch.as_tensor(value).detach().double().cpu()",
            "\tdist.all_reduce(total)",
            "\tif torch.is_tensor(value):",
            "\t\treturn total.to(value)",
            "\treturn int(total) if isinstance(value, int) and total % 1 == 0 else total.item()",
        ]
    if "all_gather" in work.needs:
        turns = f"parts[i % {world}][i // {world}] for i in range(sum(map(len, parts)))"
        send = ["\tdist.all_gather_object(parts, values)", f"\treturn [{turns}]"]
        if "all_gather tensors" in work.needs:
            # A tensor must arrive on the GPU of the process that reads it.
            pair = "(v.cpu(), v.is_cuda) if torch.is_tensor(v) else (v, False)"
            send = [
                f"\tvalues = [{pair} for v in values]",
                send[0],
                f"\tvalues = [{turns}]",
                "\treturn [v.cuda() if on_gpu else v for v, on_gpu in values]",
            ]
        lines += [
            "",
            "",
            f"def {work.all_gather}(values):",
            '\t"""Return the values of all processes, in the order of the batches."""',
            f"\tif {world} == 1:",
            "\t\treturn values",
            f"\tparts = [None] * {world}",
            *send,
        ]
    if "mean_of_all" in work.needs:
        lines += [
            "",
            "",
            f"def {work.mean_of_all}(mean, count):",
            '\t"""Weight the mean of this process, so that DDP averages over all items."""',
            f"\tif {world} == 1 or not mean.requires_grad:",
            "\t\treturn mean",
            "\tcount = torch.as_tensor(count, device=mean.device)",
            "\ttotal = count.clone()",
            "\tdist.all_reduce(total)",
            f"\treturn torch.where(count > 0, mean, 0.0) * (count * {world} / total)",
        ]
    if "bare" in work.needs:
        lines += [
            "",
            "",
            f"def {work.bare}(model):",
            '\t"""Return the model without DDP around it."""',
            "\treturn model.module if isinstance(model, DistributedDataParallel) else model",
        ]
    if "Part" in work.needs:
        lines += [
            "",
            "",
            f"class {work.part}(IterableDataset):",
            '\t"""The samples of a stream that belong to this process."""',
            "",
            "\tdef __init__(self, stream):",
            "\t\tself.stream = stream",
            "",
            "\tdef __iter__(self):",
            "\t\t# Every process gets as many: the rest at the end is dropped.",
            f"\t\tfor samples in zip(*[iter(self.stream)] * {world}):",
            f"\t\t\tyield samples[{rank}]",
        ]
    if "Share" in work.needs:
        lines += [
            "",
            "",
            f"class {work.share}:",
            '\t"""The samples of this process, in an order that the first process draws."""',
            "",
            "\tdef __init__(self, sampler):",
            "\t\tself.sampler = sampler",
            "",
            "\tdef __len__(self):",
            f"\t\treturn len(self.sampler) // {world}",
            "",
            "\tdef __iter__(self):",
            f"\t\tif {world} == 1:",
            "\t\t\treturn iter(self.sampler)",
            f"\t\torder = [list(self.sampler) if {rank} == 0 else None]",
            "\t\tdist.broadcast_object_list(order)",
            f"\t\treturn iter(order[0][{rank}::{world}][: len(self)])",
        ]
    if "divided" in work.needs:
        size = "loader.batch_size"
        even = f"loader.batch_size % {world} == 0"
        lines += [
            "",
            "",
            f"def {work.divided}(loader):",
            '\t"""Return a loader of the same kind for this process\'s part of every batch."""',
            f"\tif {world} == 1:",
            "\t\treturn loader",
        ]
        if not work.options.scale_batch:
            lines.append(f'\tassert {even}, "the batch must divide evenly by the processes"')
            size += f" // {world}"
        lines += [
            "\treturn DataLoader(",
            "\t\tloader.dataset,",
            f"\t\tbatch_size={size},",
            f"\t\tsampler={work.share}(loader.sampler),",
            *(
                f"\t\t{name}=loader.{name},"
                for name in (
                    "num_workers",
                    "collate_fn",
                    "pin_memory",
                    "drop_last",
                    "worker_init_fn",
                    "persistent_workers",
                )
            ),
            "\t)",
        ]
    if lines[-1].startswith("\t"):
        below = work.script.lines[work.script.place(last).end.line :][:2]
        lines += [""] * (2 - len([line for line in below if not line.strip()]))
    work.draft.after(last, "".join(f"{line}\n" for line in lines))


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
