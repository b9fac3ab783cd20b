"""Images decoded per second: `lockstep.data.folder` beside the plain way, alternating.

    python bench/loader.py --rounds 5 --photos 500x375 2000x1500 --save bench/results/loader.json

Both read the same generated JPEGs through the same DataLoader, one worker and then several, and
hand out random parts resized to 224x224. The plain way decodes the whole photograph and cuts
afterwards. Ratios are taken within a round and reported as the median with the range.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader

from lockstep.bench import machine
from lockstep.data import folder

BATCH = 32
FILES = 64
"""Photographs on disk; they are read again and again, so the disk takes no part."""


def photograph(width: int, height: int, seed: int) -> Image.Image:
    """Smooth noise of several scales: about as many bytes in a JPEG as a photograph."""
    noise = np.random.default_rng(seed)
    pixels = np.zeros((height, width, 3))
    for scale, weight in ((4, 90.0), (16, 45.0), (64, 25.0), (256, 40.0)):
        coarse = noise.uniform(-1, 1, (scale, scale, 3)) * weight + 128
        layer = Image.fromarray(coarse.clip(0, 255).astype(np.uint8)).resize((width, height))
        pixels += np.asarray(layer) - 128.0
    return Image.fromarray((pixels + 128).clip(0, 255).astype(np.uint8))


def write_photographs(root: Path, width: int, height: int) -> None:
    """One class, and one image to test on, which a folder needs."""
    for number in range(FILES + 1):
        path = root / ("val" if number == FILES else "train") / "photo" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        photograph(width, height, number).save(path, quality=90)


class Plain:
    """As it is usually written: open, convert, cut at random, resize, to a tensor."""

    def __init__(self, root: Path, size: int) -> None:
        self.paths, self.size = sorted((root / "train").glob("*/*.jpg")), size

    def __len__(self) -> int:
        """How many samples there are."""
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        """One sample."""
        with Image.open(self.paths[index]) as file:
            image = file.convert("RGB")
        box = self._box(*image.size)
        image = image.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous(), 0

    def _box(self, width: int, height: int) -> tuple[int, int, int, int]:
        for _ in range(10):
            pixels = width * height * random.uniform(0.08, 1.0)
            aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
            across, down = round(math.sqrt(pixels * aspect)), round(math.sqrt(pixels / aspect))
            if across <= width and down <= height:
                left, top = random.randint(0, width - across), random.randint(0, height - down)
                return left, top, left + across, top + down
        return 0, 0, width, height


def images_per_second(data: Any, workers: int, seconds: float) -> float:
    """From the arrival of the first batches on: starting the workers is not counted."""
    indices = torch.arange(1_000_000) % len(data)
    loader: Any = DataLoader(data, BATCH, sampler=indices.tolist(), num_workers=workers)
    batches = iter(loader)
    # What was read ahead while the workers started would count as read in no time.
    for _ in range(2 * workers):
        next(batches)
    started, count = time.perf_counter(), 0
    while time.perf_counter() < started + seconds:
        count += len(next(batches)[0])
    return count / (time.perf_counter() - started)


def main() -> None:
    """Alternate the sides, print ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--photos", nargs="+", default=["500x375", "2000x1500"])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    with tempfile.TemporaryDirectory() as name:
        for photo in args.photos:
            root = Path(name) / photo
            write_photographs(root, *map(int, photo.split("x")))
            sides = {"plain": Plain(root, args.size), "folder": folder(root, size=args.size).train}
            for workers in sorted({1, args.workers}):
                rates: dict[str, list[float]] = {side: [] for side in sides}
                for number in range(args.rounds):
                    for side in list(sides) if number % 2 == 0 else list(reversed(sides)):
                        rate = images_per_second(sides[side], workers, args.seconds)
                        rates[side].append(rate)
                results.append({"photo": photo, "workers": workers, "images_per_second": rates})
                show(photo, args.size, workers, rates)
    if args.save:
        document = {"machine": machine.facts(), "command": " ".join(sys.argv), "size": args.size}
        args.save.write_text(json.dumps(document | {"results": results}, indent=2) + "\n")


def show(photo: str, size: int, workers: int, rates: dict[str, list[float]]) -> None:
    """One line for each side, and their ratio."""
    print(f"{photo} to {size}, {workers} worker{'s' if workers > 1 else ''}")
    for side, values in rates.items():
        print(f"  {side:15} {statistics.median(values):7.0f} images/s  "
              f"({min(values):.0f} - {max(values):.0f})")  # fmt: skip
    ratios = [a / b for a, b in zip(rates["folder"], rates["plain"], strict=True)]
    print(f"  {'folder / plain':15} {statistics.median(ratios):7.2f}x           "
          f"({min(ratios):.2f} - {max(ratios):.2f})")  # fmt: skip


if __name__ == "__main__":
    main()
