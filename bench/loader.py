"""Compare the images per second of `lockstep.data.folder` and of the usual way, alternating.

    python bench/loader.py --rounds 5 --photos 500x375 2000x1500 --save bench/results/loader.json

Both read the same generated JPEGs through the same DataLoader, with one worker and with several,
and return random crops resized to 224x224. The usual way decodes the whole photograph and crops
afterwards. Ratios are taken within a round; the script prints their median and range.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader

from lockstep.data import folder
from measuring import alternating, described, ratios, save, spread

BATCH = 32
FILES = 64
"""Photographs on disk: few enough to stay in memory, so that the disk does not count."""


def photograph(width: int, height: int, seed: int) -> Image.Image:
    """Return smooth noise of several scales, whose JPEG is about as large as a photograph's."""
    noise = np.random.default_rng(seed)
    pixels = np.zeros((height, width, 3))
    for scale, weight in ((4, 90.0), (16, 45.0), (64, 25.0), (256, 40.0)):
        coarse = noise.uniform(-1, 1, (scale, scale, 3)) * weight + 128
        layer = Image.fromarray(coarse.clip(0, 255).astype(np.uint8)).resize((width, height))
        pixels += np.asarray(layer) - 128.0
    return Image.fromarray((pixels + 128).clip(0, 255).astype(np.uint8))


def write_photographs(root: Path, width: int, height: int) -> None:
    """Write one class of images, and the one test image that a folder needs."""
    for number in range(FILES + 1):
        path = root / ("val" if number == FILES else "train") / "photo" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        photograph(width, height, number).save(path, quality=90)


class Plain:
    """The usual data set: open, convert, crop at random, resize, convert to a tensor."""

    def __init__(self, root: Path, size: int) -> None:
        self.paths, self.size = sorted((root / "train").glob("*/*.jpg")), size

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        """Return one sample."""
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
    """Return the rate after the first batches, without the start of the workers."""
    indices = torch.arange(1_000_000) % len(data)
    loader: Any = DataLoader(data, BATCH, sampler=indices.tolist(), num_workers=workers)
    batches = iter(loader)
    # Skip the batches that the workers read ahead while they started.
    for _ in range(2 * workers):
        next(batches)
    started, count = time.perf_counter(), 0
    while time.perf_counter() < started + seconds:
        count += len(next(batches)[0])
    return count / (time.perf_counter() - started)


def main() -> None:
    """Alternate the sides, print their rates and ratios, and save."""
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
                    for side in alternating(sides, number):
                        rate = images_per_second(sides[side], workers, args.seconds)
                        rates[side].append(rate)
                results.append({"photo": photo, "workers": workers, "images_per_second": rates})
                show(photo, args.size, workers, rates)
    save(args.save, described(size=args.size, results=results))


def show(photo: str, size: int, workers: int, rates: dict[str, list[float]]) -> None:
    """Print one line per side, and one for their ratio."""
    print(f"{photo} to {size}, {workers} worker{'s' if workers > 1 else ''}")
    for side, values in rates.items():
        print(f"  {side:15} {spread(values, '.0f', ' images/s ', width=7)}")
    gain = ratios(rates["folder"], rates["plain"])
    print(f"  {'folder / plain':15} {spread(gain, '.2f', 'x          ', width=7)}")


if __name__ == "__main__":
    main()
