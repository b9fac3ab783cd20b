"""What once broke a recipe's promise in silence: it works, or it is refused by name."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from lockstep.data import Data
from lockstep.engine.recipe.recipe import Recipe
from lockstep.errors import DataError, FolderError, LockstepError, RecipeError, Untrusted
from replicas import digits_subset, small, train

COUNTING = ("counter", "late counter", "late buffer", "depth")


class Net(nn.Module):
    """A small model that may do one thing that it should not."""

    def __init__(self, odd: str = "") -> None:
        super().__init__()
        self.odd = odd
        self.a, self.b, self.c = nn.Linear(64, 16), nn.Linear(16, 16), nn.Linear(16, 10)
        self.calls = 0
        self.generator = numpy.random.default_rng(0)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.a(x.flatten(1)))
        if self.odd in COUNTING:
            self.calls += 1
        if self.odd == "numbers":
            h = h + random.random() + numpy.random.rand()
        if self.odd == "counter":
            h = h / self.calls
        if self.odd == "generator":
            h = h + self.generator.random()
        if self.odd == "late buffer" and self.calls > 14:
            self.count += 1
        if self.odd == "late counter" and self.calls > 20:
            h = h / self.calls
        if self.odd == "rank" and dist.is_initialized():
            h = h * (1 + dist.get_rank())
        if self.odd == "reentrant" and self.training:
            h = checkpoint(torch.tanh, h, use_reentrant=True)
        if self.odd == "mean":
            h = h - h.mean(0)
        if self.odd == "depth" and torch.rand(()) < 0.5 and self.calls > 4:
            return self.c(h)
        return self.c(h + torch.relu(self.b(h)))


def odd(kind: str, **changes: Any) -> Recipe:
    return small(96, model=partial(Net, kind), augment=(), epochs=3, **changes)


def hashes(recipe: Recipe, folder: Path, sizes: tuple[int, ...]) -> set[str]:
    return {train(recipe, folder / str(n), n, exact=True)["weights_sha256"] for n in sizes}


def test_python_s_and_numpy_s_random_numbers_are_keyed_by_shard(tmp_path: Path):
    assert len(hashes(odd("numbers"), tmp_path, (1, 2, 4))) == 1


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("counter", "this changed: Net.calls"),
        ("generator", "this changed: Net.generator"),
        ("late buffer", "changes the buffer count"),
    ],
)
def test_a_counter_in_the_forward_pass_is_refused(
    kind: str, message: str, replicas: int, tmp_path: Path
):
    allowed = "Net.calls" if kind == "late buffer" else ""
    with pytest.raises(RecipeError, match=message):
        train(odd(kind, may_change=allowed), tmp_path / "out", replicas, exact=True)


def test_code_that_knows_its_rank_is_refused(tmp_path: Path):
    with pytest.raises(RecipeError, match="computed by replica 0 and replica 1, the gradients"):
        train(odd("rank"), tmp_path / "out", 2, exact=True)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_counter_that_matters_late_is_refused_at_once(replicas: int, tmp_path: Path):
    recipe, out = odd("late counter"), tmp_path / "allowed"
    with pytest.raises(RecipeError, match=r"computing a shard changes Net\.calls"):
        train(recipe, tmp_path / "refused", replicas, exact=True)
    recipe = replace(recipe, may_change="Net.calls")
    allowed: dict[str, Any] = {"exact": True, "check_every": 1}
    with pytest.raises(Untrusted, match=r"step \d+, shard .* this changed: Net\.calls"):
        train(recipe, out, replicas, **allowed, checkpoint_every=1)
    with pytest.raises(FolderError, match="a run that a check has ended"):
        train(recipe, out, replicas, **allowed, resume=True)


class Noisy(torch.optim.SGD):
    """An optimizer that draws, from torch's own generator or from the system."""

    system = False

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                noise = torch.randn_like(p)
                if self.system:
                    noise += int.from_bytes(os.urandom(1), "big")
                p.add_(noise, alpha=1e-3)


class NoisyBySystem(Noisy):
    system = True


def test_an_optimizer_may_draw_random_numbers(tmp_path: Path):
    assert len(hashes(odd("", optimizer=Noisy), tmp_path, (1, 2, 4))) == 1
    recipe, out = odd("", optimizer=Noisy), tmp_path / "cut"
    train(recipe, out, 2, exact=True, max_steps=5, checkpoint_every=5)
    resumed = train(recipe, out, 1, exact=True, resume=True, checkpoint_every=5)
    assert (
        resumed["weights_sha256"]
        == train(recipe, tmp_path / "whole", 1, exact=True)["weights_sha256"]
    )


class Spectral(nn.Module):
    """Complex weights of an odd number: their quotients' bits depend on how they lie in memory."""

    def __init__(self, kind: torch.dtype = torch.cfloat) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 13)
        self.weight = nn.Parameter(torch.randn(10, 7, dtype=kind))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        waves = torch.fft.rfft(self.inner(x.flatten(1)))
        return torch.view_as_real(waves @ self.weight.T).sum(2)


def test_complex_weights_have_the_same_bits_on_any_number_of_replicas(tmp_path: Path):
    recipe = small(90, model=Spectral, augment=(), global_batch=24, optimizer=torch.optim.Adam)
    assert len(hashes(recipe, tmp_path, (1, 2, 4))) == 1


def test_weights_that_no_file_can_hold_are_refused(tmp_path: Path):
    recipe = small(96, model=partial(Spectral, torch.complex128), augment=())
    with pytest.raises(RecipeError, match="is of type complex128, which safetensors"):
        train(recipe, tmp_path / "out")


def test_replicas_that_part_are_refused_before_a_checkpoint(tmp_path: Path):
    recipe, out = odd("", optimizer=NoisyBySystem), tmp_path / "out"
    with pytest.raises(Untrusted, match=r"different weights after step 3: a\.weight"):
        train(recipe, out, 2, checkpoint_every=3)
    assert not list((out / "checkpoints").glob("*.safetensors"))
    with pytest.raises(FolderError, match="a run that a check has ended"):
        train(recipe, out, 2, checkpoint_every=3, resume=True)


CALLS = 0


def remembers(images: torch.Tensor, _: Any) -> torch.Tensor:
    """An augmentation that counts."""
    global CALLS
    CALLS += 1
    return images + CALLS


def test_an_augmentation_that_remembers_is_refused(tmp_path: Path):
    with pytest.raises(RecipeError, match="the samples differ"):
        train(small(96, augment=(remembers,)), tmp_path / "out", exact=True)


@pytest.mark.parametrize("replicas", [1, 2])
def test_checks_leave_no_trace_in_the_weights(replicas: int, tmp_path: Path):
    runs = [
        train(small(), tmp_path / str(n), replicas, exact=True, check_every=n)["weights_sha256"]
        for n in (0, 1)
    ]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("replicas", [1, 2])
def test_reentrant_checkpoints_of_activations_train(replicas: int, exact: bool, tmp_path: Path):
    train(odd("reentrant"), tmp_path / "out", replicas, exact=exact)


@pytest.mark.parametrize("exact", [True, False])
def test_layers_that_are_skipped_at_random_do_not_hang(exact: bool, tmp_path: Path):
    with pytest.raises(LockstepError, match=r"does not depend on b\.weight|are layers skipped"):
        train(odd("depth", may_change="Net.calls"), tmp_path / "out", 2, exact=exact, timeout=60.0)


def test_layers_that_are_skipped_at_random_train_on_one_replica(tmp_path: Path):
    ended = train(odd("depth", may_change="Net.calls"), tmp_path / "out", 1, exact=True)
    assert ended["status"] == "finished"


@pytest.mark.parametrize("exact", [True, False])
def test_sparse_gradients_are_refused_before_the_first_step(exact: bool, tmp_path: Path):
    recipe = small(96, model=lambda: nn.Sequential(nn.Embedding(9, 3, sparse=True)), augment=())
    with pytest.raises(RecipeError, match="has sparse gradients"):
        train(recipe, tmp_path / "out", exact=exact)


def trimmed(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss per token, of which a shard has as many as its longest sample."""
    losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
    return losses[:, None].expand(-1, 1 + int(targets.max()) % 3).flatten()


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_loss_with_other_numbers_of_items_in_other_shards_is_refused(
    replicas: int, tmp_path: Path
):
    recipe = small(96, loss=trimmed)
    with pytest.raises(RecipeError, match="cannot be weighed alike"):
        train(recipe, tmp_path / "out", replicas, exact=True)


def test_the_replicas_compare_their_numbers_of_items_in_fast_mode(tmp_path: Path):
    with pytest.raises(RecipeError, match="cannot be weighed alike"):
        train(small(96, loss=trimmed), tmp_path / "out", 4)


SIZE = 96


def some_digits() -> Data:
    return digits_subset(SIZE)


def plain_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def test_a_run_is_not_resumed_with_other_data_or_another_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    recipe = small(data=some_digits, augment=(), loss=lambda o, t: plain_loss(o, t))
    out = tmp_path / "out"
    train(recipe, out, checkpoint_every=2, max_steps=3)
    edited = replace(recipe, loss=lambda o, t: 2 * plain_loss(o, t))
    with pytest.raises(FolderError, match="the code of loss has changed"):
        train(edited, out, resume=True, checkpoint_every=2)
    monkeypatch.setitem(globals(), "SIZE", 64)
    with pytest.raises(FolderError, match=r"had 96 training samples, now 64|code of data"):
        train(recipe, out, resume=True, checkpoint_every=2)


class Samples(torch.utils.data.Dataset):
    """Samples that cannot be used, in one way or another."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        if self.kind == "raises" and index == 17:
            raise KeyError("a missing file")
        if self.kind == "dict":
            return {"x": torch.ones(1), "y": 0}
        return torch.ones(1 + index % 3 * (self.kind == "ragged")), 0


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("ragged", "cannot be stacked into one batch"),
        ("dict", "a sample of the data set is dict"),
        ("raises", "sample 17 of Samples raised KeyError: 'a missing file'\n  line"),
    ],
)
def test_samples_that_cannot_be_used_are_named(
    kind: str, message: str, workers: int, tmp_path: Path
):
    recipe = small(
        model=lambda: nn.Sequential(nn.Linear(1, 10)),
        data=lambda: Data(train=Samples(kind), test=Samples("")),
        augment=(),
        channels_last=False,
    )
    with pytest.raises(DataError) as caught:
        train(recipe, tmp_path / "out", workers=workers)
    assert message in str(caught.value)


def test_an_evaluation_that_fails_does_not_lose_the_epoch(tmp_path: Path):
    def fails(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if not (tmp_path / "mended").exists():
            raise RuntimeError("out of memory")
        return (outputs.argmax(-1) == targets).float()

    recipe = small(96, metrics={"accuracy": fails}, epochs=2)
    whole = train(small(96, epochs=2), tmp_path / "whole", exact=True)
    with pytest.raises(Exception, match="out of memory"):
        train(recipe, tmp_path / "out", exact=True, checkpoint_every=None)
    (tmp_path / "mended").touch()
    found = train(recipe, tmp_path / "out", 2, exact=True, checkpoint_every=None, resume=True)
    assert found["weights_sha256"] == whole["weights_sha256"]
    lines = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
    assert sum('"kind": "test"' in line for line in lines) == 2


def test_the_evaluation_batch_bounds_what_is_evaluated_at_once(tmp_path: Path):
    sizes: list[int] = []

    def seen(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with (tmp_path / "sizes").open("a") as file:
            file.write(f"{len(outputs)}\n")
        return (outputs.argmax(-1) == targets).float()

    train(small(96, metrics={"accuracy": seen}, evaluation_batch=7), tmp_path / "out")
    sizes = [int(line) for line in (tmp_path / "sizes").read_text().split()]
    assert set(sizes) == {7, 40 % 7}


@pytest.mark.parametrize(("kind", "warns"), [("mean", True), ("", False)])
def test_fast_mode_warns_of_a_layer_that_mixes_samples(
    kind: str, warns: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    train(odd(kind), tmp_path / "out", 2)
    said = capfd.readouterr().err
    assert ("depends on how the batch is divided" in said) == warns
