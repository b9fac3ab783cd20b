"""The promise itself: in exact mode the number of replicas does not change a bit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from lockstep import data, models
from lockstep.data.images import fashion_mnist
from lockstep.engine.recipe.builtin import DIGITS, RECIPES
from lockstep.engine.recipe.recipe import Recipe
from lockstep.errors import DataError
from lockstep.optimizers import LAMB, LARC, LARS, NovoGrad
from replicas import digits_subset, small, train


def hashes(recipe: Recipe, tmp_path: Path, replicas: tuple[int, ...], **options) -> set:
    runs = {n: train(recipe, tmp_path / str(n), n, exact=True, **options) for n in replicas}
    return {(r["weights_sha256"], *r["metrics"].values()) for r in runs.values()}


def test_digits_on_1_2_and_4_replicas_ends_in_the_same_bits(tmp_path: Path):
    assert len(hashes(replace(DIGITS, epochs=2, warmup=1.0), tmp_path, (1, 2, 4))) == 1


@pytest.mark.slow
def test_digits_over_gloo_ends_in_the_same_bits(tmp_path: Path, gloo: None):
    assert len(hashes(replace(DIGITS, epochs=2, warmup=1.0), tmp_path, (1, 2, 4))) == 1


def test_another_seed_ends_in_other_bits(tmp_path: Path):
    runs = [train(small(seed=s), tmp_path / str(s), exact=True) for s in (0, 1)]
    assert runs[0]["weights_sha256"] != runs[1]["weights_sha256"]


@pytest.mark.slow
def test_fashion_mnist_on_1_2_and_4_replicas_ends_in_the_same_bits(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("lockstep.data.images.fetch", _no_download)
    try:
        fashion_mnist(samples=1, test_samples=1)
    except DataError:
        pytest.skip("Fashion-MNIST is not on this machine")
    recipe = replace(
        RECIPES["fashion-mnist"],
        data=partial(fashion_mnist, samples=20, test_samples=8),
        global_batch=8,
        shards=4,
        epochs=1,
    )
    assert len(hashes(recipe, tmp_path, (1, 2, 4))) == 1


def _no_download(*args, **kwargs):
    raise DataError("no download in tests")


def test_stdlib_on_1_2_and_4_replicas_ends_in_the_same_bits(tmp_path: Path):
    recipe = replace(
        RECIPES["stdlib"],
        model=partial(models.gpt, layers=2, width=32, length=32, dropout=0.1),
        data=partial(data.stdlib, length=32, megabytes=0.05),
        epochs=1,
    )
    assert len(hashes(recipe, tmp_path, (1, 2, 4), max_steps=6)) == 1


class Recomputed(torch.nn.Sequential):
    """Layers whose activations are computed again in backward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(super().forward, x, use_reentrant=False)


def layers(kind: type[torch.nn.Sequential]) -> torch.nn.Module:
    nn = torch.nn
    first = kind(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3))
    return nn.Sequential(nn.Flatten(), first, kind(nn.Linear(32, 10), nn.Dropout(0.1)))


@pytest.mark.parametrize("exact", [True, False])
def test_checkpoints_of_activations_change_no_bit(tmp_path: Path, exact: bool):
    recipes = [small(model=partial(layers, kind)) for kind in (Recomputed, torch.nn.Sequential)]
    runs = [train(r, tmp_path / str(n), 2, exact=exact) for n, r in enumerate(recipes)]
    assert runs[0]["weights_sha256"] == runs[1]["weights_sha256"]
    if exact:
        alone = train(recipes[0], tmp_path / "alone", 1, exact=True)
        assert alone["weights_sha256"] == runs[0]["weights_sha256"]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_cifar10_fast_ends_in_the_same_bits(tmp_path: Path, precision, sizes):
    recipe = replace(
        RECIPES["cifar10-fast"],
        model=partial(models.quicknet, widths=(4, 8)),
        data=partial(data.synthetic, samples=40, test_samples=8, shape=(3, 12, 12), classes=10),
        precision=precision,
        global_batch=16,
        epochs=2,
    )
    assert len(hashes(recipe, tmp_path, sizes)) == 1


@pytest.mark.parametrize("rest", [1, 2, 3, 5])
def test_a_last_batch_smaller_than_the_shards_keeps_the_bits(tmp_path: Path, rest: int, sizes):
    assert len(hashes(small(32 + rest, epochs=3), tmp_path, sizes)) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"clip": 0.1},
        {"precision": "bf16"},
        {"shards": 8},
        {"optimizer": partial(torch.optim.AdamW, weight_decay=0.1)},
        {"optimizer": partial(LARS, weight_decay=1e-3, trust=0.02), "learning_rate": 1.0},
        {"optimizer": partial(LARC, weight_decay=1e-3, nesterov=True)},
        {"optimizer": partial(LAMB, weight_decay=0.1)},
        {"optimizer": partial(NovoGrad, weight_decay=1e-3)},
        {"channels_last": False},
    ],
    ids=str,
)
def test_clipping_precision_and_optimizers_keep_the_bits(tmp_path: Path, changes: dict, sizes):
    assert len(hashes(small(**changes), tmp_path, sizes)) == 1


def test_the_logged_losses_are_the_same_bits_too(tmp_path: Path, sizes):
    hashes(small(), tmp_path, sizes)
    logs = []
    for n in sizes:
        lines = (tmp_path / str(n) / "metrics.jsonl").read_text().splitlines()
        fields = ("step", "loss", "test_loss", "accuracy", "learning_rate")
        logs.append(
            [
                [part for part in line.split(", ") if any(f'"{f}"' in part for f in fields)]
                for line in lines
            ]
        )
    assert logs[0] == logs[1]
    assert len(logs[0]) == 4  # a training and a test line after each epoch


class Noisy(torch.utils.data.Dataset):
    """A data set of a user, with randomness of its own in three libraries."""

    def __init__(self, samples: int) -> None:
        self.data = digits_subset(samples).train

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int):
        import random

        import numpy

        image, target = self.data[index]
        noise = random.random() + numpy.random.rand() + torch.rand(1).item()
        return image.float() / 16 + noise * torch.randn(8, 8), target


def test_workers_and_a_random_dataset_of_the_user_keep_the_bits(tmp_path: Path):
    recipe = small(data=lambda: data.Data(train=Noisy(40), test=Noisy(8)), epochs=1)
    results = set()
    for replicas, workers in ((1, 0), (1, 1), (2, 2), (4, 1)):
        out = tmp_path / f"{replicas}-{workers}"
        run = train(recipe, out, replicas, exact=True, workers=workers)
        results.add(run["weights_sha256"])
    assert len(results) == 1


def test_both_loaders_give_the_same_bits(tmp_path: Path):
    runs = [
        train(small(), tmp_path / str(resident), 2, exact=True, resident=resident, workers=1)
        for resident in (True, False)
    ]
    assert runs[0]["weights_sha256"] == runs[1]["weights_sha256"]
