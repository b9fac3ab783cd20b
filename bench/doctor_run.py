"""Measure what the probes of `lockstep doctor --run` cost: a script with and without them.

    python bench/doctor_run.py
    python bench/doctor_run.py --rounds 7 --save bench/results/doctor-run.json

Both sides alternate, on two ranks over gloo with one thread each. The script measures the training
loop and the whole run from the start of its processes to their end, and compares the losses of both
sides bit by bit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from lockstep.probes.run_script import ScriptRun, run
from lockstep.probes.settings import Settings
from measuring import save

SCRIPT = """
import sys, time, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

kind, steps = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
if kind == "mlp":
    data = TensorDataset(torch.randn(8192, 784), torch.randint(10, (8192,)))
    net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
else:
    data = TensorDataset(torch.randn(2048, 3, 32, 32), torch.randint(10, (2048,)))
    width = 32
    layers, before = [], 3
    for after in (width, 2 * width, 4 * width):
        layers += [nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.ReLU()]
        before = after
    net = nn.Sequential(*layers, nn.Dropout(0.1), nn.Flatten(), nn.Linear(before * 16, 10))
sampler = DistributedSampler(data)
workers = 2 if kind == "workers" else 0
loader = DataLoader(data, batch_size=64, sampler=sampler, num_workers=workers)
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
losses, done, epoch = [], 0, 0
began = time.perf_counter()
while done < steps:
    sampler.set_epoch(epoch)
    epoch += 1
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        done += 1
        if done == steps:
            break
seconds = time.perf_counter() - began
print("loop", seconds, torch.stack(losses).double().sum().item().hex())
del model, optimizer
dist.destroy_process_group()
"""
KINDS = {"mlp": 600, "cnn": 150, "workers": 150}


def measured(script: Path, kind: str, steps: int, watch: bool) -> tuple[float, float, str]:
    """Run the script; return the seconds of its loop and of the whole, and rank 0's losses."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(
            ScriptRun(
                script=script,
                arguments=(kind, str(steps)),
                settings=Settings(folder=folder, watch=watch),
            )
        )
        said = outcome.logs[0].read_text()
    if outcome.how != "finished":
        sys.exit(f"{kind} {outcome.how}:\n{said}")
    line = next(line for line in said.splitlines() if line.startswith("loop "))
    _, seconds, losses = line.split()
    return float(seconds), outcome.seconds, losses


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    result: dict[str, Any] = {"command": " ".join(["python", *sys.argv]), "rounds": given.rounds}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "train.py")
        script.write_text(textwrap.dedent(SCRIPT))
        for kind, steps in KINDS.items():
            rows = []
            for number in range(given.rounds):
                sides = {}
                for watch in (True, False) if number % 2 else (False, True):
                    sides[watch] = measured(script, kind, steps, watch)
                rows.append((sides[True], sides[False]))
            loops = [watched[0] / plain[0] for watched, plain in rows]
            wholes = [watched[1] / plain[1] for watched, plain in rows]
            result[kind] = {
                "steps": steps,
                "milliseconds_per_step": statistics.median(p[0] for _, p in rows) / steps * 1e3,
                "loop_ratio": statistics.median(loops),
                "loop_ratio_spread": [min(loops), max(loops)],
                "whole_ratio": statistics.median(wholes),
                "whole_ratio_spread": [min(wholes), max(wholes)],
                "same_losses": all(watched[2] == plain[2] for watched, plain in rows),
            }
            print(kind, json.dumps(result[kind]))
    save(given.save, result)


if __name__ == "__main__":
    main()
