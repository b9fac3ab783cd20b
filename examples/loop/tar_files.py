"""Samples in tar files, read with WebDataset.

It needs the package webdataset. `nodesplitter` hands every replica all files, because lockstep
divides the samples itself; `rng=random` lets lockstep seed the shuffling for every epoch.

python examples/loop/tar_files.py
lockstep train examples/loop/tar_files.py --replicas 2 --workers 1 --out runs/tar-files
"""

import io
import json
import random
import tarfile
import tempfile
from pathlib import Path

import torch
import webdataset
from torch import nn
from torch.nn import functional as F

import lockstep


def write_files(folder: Path) -> list[str]:
    """Write three tar files with 80 samples each, as a data set on disk would be."""
    paths = []
    for number in range(3):
        path = folder / f"part-{number}.tar"
        with tarfile.open(path, "w") as tar:
            for sample in range(80):
                x = [(sample * 7 + number) % 11 / 11, sample % 5 / 5]
                parts = {"json": json.dumps(x), "cls": str(int(x[0] > x[1]))}
                for kind, text in parts.items():
                    info = tarfile.TarInfo(f"{number}-{sample:04d}.{kind}")
                    info.size = len(text)
                    tar.addfile(info, io.BytesIO(text.encode()))
        paths.append(str(path))
    return paths


def decoded(sample: dict) -> tuple[torch.Tensor, int]:
    """Decode a sample: called only for the samples of this replica."""
    return torch.tensor(json.loads(sample["json"])), int(sample["cls"])


def main() -> None:
    """Train for two epochs over the files."""
    with (
        tempfile.TemporaryDirectory() as folder,
        lockstep.Loop(global_batch=32, exact=True) as loop,
    ):
        files = webdataset.WebDataset(
            write_files(Path(folder)), shardshuffle=False, nodesplitter=lambda files: files
        )
        model = loop.model(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2)))
        optimizer = loop.optimizer(torch.optim.Adam(model.parameters(), lr=2e-2))
        batches = loop.batches(files.shuffle(100, rng=random), transform=decoded)

        def loss(batch):
            x, y = batch
            return F.cross_entropy(model(x), y, reduction="sum"), len(y)

        for epoch in loop.epochs(2):
            for batch in batches:
                loop.step(batch, loss, optimizer)
            loop.say(f"epoch {epoch}: loss {loop.logged['loss']:.4f}")


if __name__ == "__main__":
    main()
