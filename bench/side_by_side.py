"""The same program for one GPU, with lockstep and with Accelerate: lines, and one process or two.

Each program of examples/side_by_side trains with Accelerate on one process and on two, and the
program of the same name in examples/loop trains with lockstep on one replica and on two. The
difference is that of the final weights, relative to their norm; 0 means equal bits.

For each cause of a difference, `CAUSES` has the edits that remove it from the Accelerate program.
The script measures the difference without any of them, which is that of rounding, and the
difference that each of them makes alone, with all others removed.

python bench/side_by_side.py --save bench/results/side-by-side.json
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import described, save

ROOT = Path(__file__).parent.parent
OURS = ROOT / "examples" / "loop"
THEIRS = ROOT / "examples" / "side_by_side"
AT_EXIT = "terminate called without an active exception"
NO_METRICS = (
    "weights", "norm", "tensors", "kind", "step", "epoch", "seconds", "learning_rate", "samples",
)  # fmt: skip
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


@dataclass(frozen=True)
class Cause:
    """A reason why two processes train differently, and the edits that remove it."""

    name: str
    edits: tuple[tuple[str, str], ...]

    def removed_from(self, text: str) -> str:
        """Return the program without this cause; each edit must fit in exactly one place."""
        for before, after in self.edits:
            if text.count(before) != 1:
                raise ValueError(f"{self.name}: {before!r} occurs {text.count(before)} times")
            text = text.replace(before, after)
        return text


def dropout(before: str, after: str) -> Cause:
    """Two processes draw other dropout masks than one."""
    return Cause("dropout masks", ((before, after),))


# Both one process and two leave the small batch out.
LAST_BATCH = Cause("repeated samples", (("shuffle=True", "shuffle=True, drop_last=True"),))

CAUSES: dict[str, tuple[Cause, ...]] = {
    "transformer": (
        Cause(
            "mean of means",
            (
                (
                    "            loss = model(**batch).loss\n",
                    '            found = (batch["labels"] != IGNORED).sum()\n'
                    "            whole = accelerator.gather(found).sum()\n"
                    "            loss = model(**batch).loss"
                    " * found * accelerator.num_processes / whole\n",
                ),
            ),
        ),
        Cause(
            "hidden letters",
            (
                (
                    "        hidden = torch.tensor([random.random() < 0.15 for _ in text])\n",
                    "        draws = random.Random(bytes(text.tolist()))\n"
                    "        hidden = torch.tensor([draws.random() < 0.15 for _ in text])\n",
                ),
            ),
        ),
        dropout(
            "        pad_token_id=PAD,\n",
            "        pad_token_id=PAD,\n"
            "        hidden_dropout_prob=0.0,\n"
            "        attention_probs_dropout_prob=0.0,\n",
        ),
        LAST_BATCH,
    ),
    "gan": (
        Cause("batch norm", (("nn.BatchNorm1d(64)", "nn.LayerNorm(64)"),)),
        Cause(
            "noise",
            (
                (
                    "    def fakes(",
                    "    draws = torch.Generator().manual_seed(1)\n\n    def fakes(",
                ),
                (
                    "        return generator(torch.randn(len(images), LATENT,"
                    " device=accelerator.device))\n",
                    "        noise = torch.randn(64, LATENT, generator=draws)\n"
                    "        first = accelerator.process_index * len(images)\n"
                    "        return generator(noise[first : first + len(images)])\n",
                ),
            ),
        ),
        dropout("nn.Dropout(0.2)", "nn.Dropout(0.0)"),
        LAST_BATCH,
    ),
    "segmentation": (
        Cause("batch norm", (("nn.BatchNorm2d(16)", "nn.GroupNorm(1, 16)"),)),
        Cause(
            "augmentation",
            (
                (
                    "        if torch.rand(()) < 0.5:\n",
                    "        draws = torch.Generator().manual_seed(index)\n"
                    "        if torch.rand((), generator=draws) < 0.5:\n",
                ),
                ("torch.randn(figure.shape)", "torch.randn(figure.shape, generator=draws)"),
            ),
        ),
        dropout("nn.Dropout2d(0.1)", "nn.Dropout2d(0.0)"),
        LAST_BATCH,
    ),
    "finetune": (
        Cause("batch norm", (("nn.BatchNorm2d(32)", "nn.GroupNorm(1, 32)"),)),
        dropout("nn.Dropout(0.2)", "nn.Dropout(0.0)"),
        LAST_BATCH,
    ),
    "stream": (),
    "contrastive": (
        Cause(
            "half of the negatives",
            (
                (
                    "            scores = scale * upper @ lower.T\n",
                    "            if accelerator.num_processes > 1:\n"
                    "                gather = torch.distributed.nn.functional.all_gather\n"
                    "                upper, lower = (torch.cat(gather(part)) for part in"
                    " (upper, lower))\n"
                    "            scores = scale * upper @ lower.T\n",
                ),
                ("import torch\n", "import torch\nimport torch.distributed.nn.functional\n"),
            ),
        ),
        dropout(
            "        self.log_scale =",
            "        self.upper[2].p = self.lower[2].p = 0.0\n        self.log_scale =",
        ),
        LAST_BATCH,
    ),
    "accumulation": (
        dropout(
            "    model = Net()\n",
            "    model = Net()\n"
            "    for layer in model.modules():\n"
            "        if isinstance(layer, nn.Dropout):\n"
            "            layer.p = 0.0\n",
        ),
        LAST_BATCH,
    ),
    "language_model": (
        Cause(
            "mean of means",
            (
                (
                    "            optimizer.zero_grad()\n",
                    "            found = (targets != PAD).sum()\n"
                    "            whole = accelerator.gather(found).sum()\n"
                    "            loss = loss * found * accelerator.num_processes / whole\n"
                    "            optimizer.zero_grad()\n",
                ),
            ),
        ),
        dropout("nn.Dropout(0.1)", "nn.Dropout(0.0)"),
        Cause(
            "small batch",
            (("range(0, len(order), BATCH)", "range(0, len(order) - BATCH + 1, BATCH)"),),
        ),
    ),
}

# A fix that leaves no sample out. It is measured with the other causes removed.
MENDS: dict[str, Cause] = {
    "finetune": Cause(
        "repeated samples",
        (
            (
                "            loss = F.cross_entropy(model(images), labels)\n",
                '            each = F.cross_entropy(model(images), labels, reduction="none")\n'
                "            state, world = accelerator.gradient_state,"
                " accelerator.num_processes\n"
                "            own = state.remainder if state.end_of_dataloader"
                " else len(each) * world\n"
                "            place = accelerator.process_index * len(each)"
                " + torch.arange(len(each))\n"
                "            loss = (each * (place < own)).sum() * world / own\n",
            ),
        ),
    )
}


def lines(path: Path) -> int:
    """Count lines of code, without those that report to this comparison."""
    text = path.read_text()
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            found |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if _is_docstring(node) or _reports(node):
            found -= set(range(node.lineno, node.end_lineno + 1))
    return len(found)


def _is_docstring(node: Any) -> bool:
    value = getattr(node, "value", None)
    return isinstance(node, ast.Expr) and isinstance(getattr(value, "value", None), str)


def _reports(node: Any) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "ending"
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return called and getattr(node.value.func, "id", None) == "finish"


def started(command: list[str]) -> str:
    """Run a command on the CPU, with one thread per process; return what it printed."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=env, check=False
    )
    # gloo sometimes aborts a process that has finished its work (pytorch/pytorch#190489). The
    # result is complete by then: no process ends before the first one has saved it.
    complete = done.stdout.startswith("{") and AT_EXIT in done.stderr
    if done.returncode and not complete:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def by_torchrun(program: Path, processes: int, out: Path) -> dict[str, Any]:
    """Run a program of examples/side_by_side; return its result with its weights."""
    import torch

    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    printed = started([*command, str(program), "--save", str(out)])
    return {**json.loads(printed.splitlines()[-1]), "tensors": torch.load(out)}


def by_lockstep(program: Path, replicas: int, out: Path) -> dict[str, Any]:
    """Run a program of examples/loop; return its metrics with its weights."""
    from safetensors.torch import load_file

    started(
        ["-m", "lockstep", "train", str(program), "--replicas", str(replicas), "--out", str(out)]
    )
    reported: dict[str, Any] = {}
    for line in (out / "metrics.jsonl").read_text().splitlines():
        reported |= json.loads(line)
    kept = {k: v for k, v in reported.items() if not k.startswith(NO_METRICS)}
    return {**kept, "tensors": load_file(out / "weights.safetensors")}


def difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Return the distance of the weights of two runs, relative to the norm of the first.

    The result is 0 if and only if all bits are equal.
    """
    first, second = one["tensors"], other["tensors"]
    if first.keys() != second.keys():
        raise ValueError("The two runs saved other weights.")
    if all(first[name].numpy().tobytes() == second[name].numpy().tobytes() for name in first):
        return 0.0
    floats = [name for name in first if first[name].is_floating_point()]
    distance = sum((first[n].double() - second[n].double()).square().sum().item() for n in floats)
    square = sum(first[name].double().square().sum().item() for name in floats)
    # Bits may differ where values do not: 0.0 and -0.0.
    return max(math.sqrt(distance / square), sys.float_info.min)


def metrics(*runs: dict[str, Any]) -> dict[str, list[float]]:
    """Return each number that the runs report, next to each other."""
    names = [name for name in runs[0] if not name.startswith(NO_METRICS)]
    return {name: [run[name] for run in runs] for name in names}


def without(name: str, kept: str | None = None) -> str:
    """Return the Accelerate program with one of its causes, or with none."""
    text = (THEIRS / f"{name}_accelerate.py").read_text()
    for cause in CAUSES[name]:
        if cause.name != kept:
            text = cause.removed_from(text)
    return text


def mended(name: str) -> str:
    """Return the Accelerate program without causes, one of which is fixed instead."""
    mend = MENDS[name]
    return mend.removed_from(without(name, mend.name))


def measured(name: str, text: str, folder: Path) -> float:
    """Return the difference of a version of the Accelerate program."""
    shutil.copy(THEIRS / "ending.py", folder)
    path = folder / f"{name}_varied.py"
    path.write_text(text)
    return difference(*(by_torchrun(path, n, folder / f"{n}.pt") for n in (1, 2)))


def compared(name: str, folder: Path) -> dict[str, Any]:
    """Measure one program."""
    files = {
        "one_gpu": THEIRS / f"{name}_one_gpu.py",
        "lockstep": OURS / f"{name}.py",
        "accelerate": THEIRS / f"{name}_accelerate.py",
    }
    alone = by_torchrun(files["one_gpu"], 1, folder / "alone.pt")
    theirs = [by_torchrun(files["accelerate"], n, folder / f"{n}.pt") for n in (1, 2)]
    ours = [by_lockstep(files["lockstep"], n, folder / f"ours{n}") for n in (1, 2)]
    return {
        "lines": {side: lines(path) for side, path in files.items()},
        "difference": {"accelerate": difference(*theirs), "lockstep": difference(*ours)},
        "metrics": {
            "one_gpu": metrics(alone),
            "accelerate": metrics(*theirs),
            "lockstep": metrics(*ours),
        },
        "one_gpu_against_accelerate_on_one_process": difference(alone, theirs[0]),
        "causes_alone": {
            cause.name: measured(name, without(name, cause.name), folder) for cause in CAUSES[name]
        },
        "without_causes": measured(name, without(name), folder),
        **({"mended": measured(name, mended(name), folder)} if name in MENDS else {}),
    }


def rows(programs: dict[str, Any]) -> list[str]:
    """Return the rows of the table in docs/guides/side-by-side.md."""
    found = []
    for name, program in programs.items():
        count, apart = program["lines"], program["difference"]
        causes = sorted(program["causes_alone"].items(), key=lambda cause: -cause[1])
        texts = [f"{cause} {alone:.2g}" for cause, alone in causes] or ["rounding alone"]
        cells = [
            f"[{name}](#{name})",
            *(str(count[side]) for side in ("one_gpu", "lockstep", "accelerate")),
            *(f"{apart[side]:.2g}" for side in ("accelerate", "lockstep")),
            ", ".join(texts),
        ]
        found.append("| " + " | ".join(cells) + " |")
    return found


def metric_rows(programs: dict[str, Any]) -> list[str]:
    """Return the rows of the table of metrics: each on one process, then on two."""
    found = []
    for name, program in programs.items():
        theirs, ours = program["metrics"]["accelerate"], program["metrics"]["lockstep"]
        metric = list(theirs)[-1]
        same = "loss_generator" if metric == "generator_loss" else metric
        cells = [f"{one:.4g}, {two:.4g}" for one, two in (theirs[metric], ours[same])]
        found.append(f"| {name} | `{metric}` | {cells[0]} | {cells[1]} |")
    return found


def main() -> None:
    """Compare all programs, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default=",".join(CAUSES))
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    found = {}
    for name in given.programs.split(","):
        with tempfile.TemporaryDirectory() as folder:
            found[name] = compared(name, Path(folder))
        print(*rows({name: found[name]}), flush=True)
    save(given.save, described(programs=found))


if __name__ == "__main__":
    main()
