"""Measure what each wire costs in accuracy and saves on a slow link, with two CPU replicas.

    sudo python bench/exchange.py --seeds 6 --rounds 5 --save bench/results/exchange.json

For accuracy, the script trains digits with every wire and the same seeds, and compares seed by
seed. For time and bytes, it joins two network namespaces by a veth pair whose ends send at --mbit;
that needs root, and the script skips it otherwise. Every call of the loss reads the clock and the
link's counter.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lockstep import data, models
from lockstep.cluster.launch import launch
from lockstep.console import Console
from lockstep.engine.recipe.builtin import DIGITS
from lockstep.engine.recipe.job import WIRES, Job
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.step.metrics import cross_entropy
from measuring import alternating, described, interval, ratios, save, spread, trained

SIDES: dict[str, dict[str, Any]] = {
    "fp32, one bucket": {"bucket_mb": 1024.0},
    **{wire: {"wire": wire} for wire in WIRES},
}
BATCH = 4
"""Samples per replica: few, so that the link sets the pace."""
SKIPPED = 2
"""Steps before the first that counts: DDP rebuilds its buckets after the first."""


def accuracy(seeds: int) -> dict[str, Any]:
    """Return accuracy and last training loss of digits by wire and seed."""
    found: dict[str, Any] = {w: {"accuracy": [], "test_loss": [], "train_loss": []} for w in WIRES}
    for seed in range(seeds):
        for wire in alternating(WIRES, seed):
            summary, records = trained(replace(DIGITS, seed=seed), replicas=2, wire=wire)
            losses = [record["loss"] for record in records if record["kind"] == "train"]
            for name in ("accuracy", "test_loss"):
                found[wire][name].append(summary["metrics"][name])
            found[wire]["train_loss"].append(losses[-1])
    for name in ("accuracy", "test_loss", "train_loss"):
        for wire in WIRES:
            pairs = zip(found[wire][name], found["fp32"][name], strict=True)
            found[wire][f"{name}_difference"] = interval([a - b for a, b in pairs])
    return found


def recipe() -> Recipe:
    """Return a WideResNet-16-4 with 11 MB of gradients, and a loss that notes its calls."""
    return Recipe(
        name="thin",
        model=partial(models.wideresnet, depth=16, width=4, channels=1),
        data=partial(data.synthetic, samples=512, test_samples=8, shape=(1, 28, 28), classes=10),
        loss=noted,
        metrics=DIGITS.metrics,
        optimizer=DIGITS.optimizer,
        learning_rate=0.01,
        channels_last=True,
        global_batch=2 * BATCH,
        shards=2,
        epochs=1000,
    )


notes: list[tuple[float, int]] = []
counter: Path | None = None


def noted(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss; in training, also note the time and the bytes sent so far."""
    if outputs.requires_grad and counter is not None:
        notes.append((time.perf_counter(), int(counter.read_text())))
    return cross_entropy(outputs, targets)


def replica(side: str, device: str, out: Path, steps: int) -> None:
    """Run one replica in its namespace and print its notes."""
    global counter
    counter = Path(f"/sys/class/net/{device}/statistics/tx_bytes")
    job = Job(
        recipe=recipe(),
        out=out,
        replicas=2,
        checkpoint_every=0,
        max_steps=steps + SKIPPED + 1,
        **SIDES[side],
    )
    summary = launch(job, device="cpu", console=Console(as_json=True))
    print(json.dumps({"notes": notes[SKIPPED:], "exchange": summary["exchange"]}))


@contextmanager
def thin_link(mbit: int) -> Iterator[list[tuple[str, str]]]:
    """Make two namespaces, each with one end of a slow link; yield their names and devices."""
    ends = [(f"lockstep-{os.getpid()}-{n}", f"thin{os.getpid() % 100000}{n}") for n in (0, 1)]
    try:
        for space, _ in ends:
            run("ip", "netns", "add", space)
        (first, one), (second, other) = ends
        run("ip", "-n", first, "link", "add", one, "type", "veth", "peer", other, "netns", second)
        for number, (space, device) in enumerate(ends):
            run("ip", "-n", space, "address", "add", f"10.77.0.{number + 1}/24", "dev", device)
            run("ip", "-n", space, "link", "set", "lo", "up")
            run("ip", "-n", space, "link", "set", device, "up")
            shape = ["rate", f"{mbit}mbit", "burst", "128kb", "latency", "200ms"]
            run("tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", *shape)
        yield ends
    finally:
        for space, _ in ends:
            with suppress(OSError, subprocess.CalledProcessError):
                run("ip", "netns", "delete", space)


def run(*command: str) -> None:
    """Run a command that must succeed."""
    subprocess.run(command, check=True, capture_output=True, text=True)


def over(ends: list[tuple[str, str]], side: str, steps: int, port: int) -> dict[str, Any]:
    """Return seconds and bytes of each step of the first replica."""
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        for rank, (space, device) in enumerate(ends):
            command = ["ip", "netns", "exec", space, sys.executable, __file__, "--side", side]
            command += ["--device", device, "--out", str(Path(folder) / "run")]
            command += ["--steps", str(steps)]
            world = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
            world |= {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": str(port)}
            env = {**os.environ, **world, "GLOO_SOCKET_IFNAME": device, "OMP_NUM_THREADS": "1"}
            pipe = subprocess.PIPE
            processes.append(
                subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True)
            )
        try:
            outputs = [p.communicate(timeout=300) for p in processes]
        finally:
            for process in processes:
                process.kill()
    for process, (_, said) in zip(processes, outputs, strict=True):
        if process.returncode:
            raise RuntimeError(said)
    result = json.loads(outputs[0][0].strip().splitlines()[-1])
    pairs = list(zip(result["notes"], result["notes"][1:], strict=False))
    return {
        "seconds": [b[0] - a[0] for a, b in pairs],
        "bytes": [b[1] - a[1] for a, b in pairs],
        "exchange": result["exchange"],
    }


def thin(mbit: int, rounds: int, steps: int) -> dict[str, Any] | None:
    """Measure all sides over a slow link, alternating."""
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    try:
        with thin_link(mbit) as ends:
            for number in range(rounds):
                for place, side in enumerate(alternating(SIDES, number)):
                    port = 29500 + number * len(SIDES) + place
                    found[side].append(over(ends, side, steps, port))
    except (OSError, subprocess.CalledProcessError) as error:
        said = error.stderr if isinstance(error, subprocess.CalledProcessError) else error
        print(f"No thin link here, so no times: {said}. It needs root, ip and tc.")
        return None
    return {
        side: {
            "seconds": [statistics.median(r["seconds"]) for r in results],
            "bytes": [statistics.fmean(r["bytes"]) for r in results],
            "exchange": [r["exchange"] for r in results],
        }
        for side, results in found.items()
    }


def show_accuracy(found: dict[str, Any]) -> None:
    """Print a line per wire: means, and differences to fp32 with their interval."""
    for wire, values in found.items():
        cells = [f"accuracy {statistics.fmean(values['accuracy']):.4f}"]
        cells += [f"train loss {statistics.fmean(values['train_loss']):.4f}"]
        for name in ("accuracy", "train_loss") if wire != "fp32" else ():
            d = values[f"{name}_difference"]
            cells.append(f"{name} {d['mean']:+.4f} ({d['low']:+.4f} to {d['high']:+.4f})")
        print(f"{wire:18}", "   ".join(cells))


def show_thin(found: dict[str, Any]) -> None:
    """Print a line per side: step time, gain over fp32, bytes counted and computed."""
    for side, values in found.items():
        milliseconds = [1e3 * seconds for seconds in values["seconds"]]
        gain = ratios(found["fp32"]["seconds"], values["seconds"])
        print(
            f"{side:18} {spread(milliseconds, '.1f', ' ms a step', width=7)}   "
            f"{spread(gain, '.2f', 'x fp32', width=5)}   "
            f"{statistics.median(values['bytes']) / 1e6:7.3f} MB sent, computed "
            f"{values['exchange'][0]['sent_bytes'] / 1e6:.3f}"
        )


def main() -> None:
    """Take both measurements; with --side, run one replica of the second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--mbit", type=int, default=200)
    parser.add_argument("--note", default="", help="what else ran on the machine")
    parser.add_argument("--save", type=Path)
    for name in ("--side", "--device", "--out"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        replica(args.side, args.device, Path(args.out), args.steps)
        return
    document = described(note=args.note)
    if args.seeds:
        document["accuracy"] = accuracy(args.seeds)
        show_accuracy(document["accuracy"])
    if args.rounds:
        document["thin"] = thin(args.mbit, args.rounds, args.steps)
        if document["thin"]:
            show_thin(document["thin"])
    save(args.save, document)


if __name__ == "__main__":
    main()
