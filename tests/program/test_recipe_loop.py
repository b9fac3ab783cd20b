"""Recipes that a Loop trains: nested batches, weights, whole-set metrics, 16-bit precisions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import default_collate

from lockstep import Data, Recipe, metrics
from lockstep.cluster.launch import launch
from lockstep.console import Console
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.resolve import find_recipe
from lockstep.errors import DataError, FolderError, PlanError, RecipeError, ReplicaDied
from programs import killed_after


def texts(number: int, seed: int) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(number):
        length = int(torch.randint(3, 12, (1,), generator=generator))
        tokens = torch.randint(1, 20, (length,), generator=generator)
        found.append({"tokens": tokens, "tags": tokens.cumsum(0) % 5})
    return found


def collate(samples: list[dict[str, Tensor]]) -> tuple[dict[str, Tensor], Tensor]:
    tokens = pad_sequence([s["tokens"] for s in samples], batch_first=True)
    tags = pad_sequence([s["tags"] for s in samples], batch_first=True, padding_value=-1)
    return {"tokens": tokens, "mask": tokens > 0}, tags


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.drop = nn.Embedding(20, 16), nn.Dropout(0.1)
        self.hidden, self.head = nn.Linear(16, 32), nn.Linear(32, 5)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        hidden = self.hidden(self.embed(tokens) * mask[..., None])
        return self.head(self.drop(hidden.relu()))


def masked(outputs: Tensor, tags: Tensor) -> tuple[Tensor, Tensor]:
    """Return a loss for every place, and weight zero for padding."""
    flat = tags.flatten()
    values = functional.cross_entropy(outputs.flatten(0, 1), flat.clamp(min=0), reduction="none")
    return values, (flat >= 0).float()


def chosen(outputs: Tensor, tags: Tensor) -> Tensor:
    """Return one loss for each tag that is there."""
    there = tags >= 0
    return functional.cross_entropy(outputs[there], tags[there], reduction="none")


def summed(outputs: Tensor, tags: Tensor) -> tuple[Tensor, int]:
    values = chosen(outputs, tags)
    return values.sum(), len(values)


def right(outputs: Tensor, tags: Tensor) -> Tensor:
    return (outputs.argmax(-1) == tags)[tags >= 0].float()


def by_name(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    slow = [p for name, p in model.named_parameters() if "embed" in name]
    rest = [p for name, p in model.named_parameters() if "embed" not in name]
    return torch.optim.AdamW([{"params": slow, "lr": lr / 10}, {"params": rest}], lr=lr)


RECIPE = Recipe(
    name="tagger",
    model=Tagger,
    data=lambda: Data(train=texts(150, 0), test=texts(37, 1)),
    loss=masked,
    metrics={"accuracy": right},
    optimizer=by_name,
    learning_rate=0.01,
    global_batch=32,
    epochs=2,
    collate=collate,
    clip=1.0,
)


def train(recipe: Recipe, out: Path, replicas: int = 1, **options: Any) -> dict[str, Any]:
    job = Job(recipe=recipe, out=out, replicas=replicas, workers=0, **options)
    return launch(job, device="cpu", console=Console(quiet=True))


@pytest.mark.parametrize("precision", ["fp32", "fp16", "pure-bf16"])
def test_nested_batches_have_the_same_bits_on_any_number_of_replicas(
    tmp_path: Path, precision: Any, numbers: tuple[int, ...]
):
    recipe = replace(RECIPE, precision=precision)
    runs = [train(recipe, tmp_path / str(n), n, exact=True) for n in numbers]
    assert len({run["weights_sha256"] for run in runs}) == 1
    assert len({str(run["metrics"]) for run in runs}) == 1
    assert runs[0]["metrics"]["test_loss"] < 1.7


def test_a_plain_recipe_has_the_bits_of_the_recorded_steps(tmp_path: Path):
    plain = replace(find_recipe("digits"), augment=(), channels_last=False, epochs=1)
    general = replace(plain, collate=default_collate)
    a, b = (
        train(recipe, tmp_path / str(n), 2, exact=True, max_steps=12)
        for n, recipe in enumerate((plain, general))
    )
    assert a["weights_sha256"] == b["weights_sha256"]
    assert a["metrics"] == b["metrics"]


def test_three_ways_to_count_tokens_give_one_gradient(tmp_path: Path):
    losses = {"values and weights": masked, "values": chosen, "sum and count": summed}
    found = [
        train(replace(RECIPE, loss=loss), tmp_path / name, exact=True, max_steps=5)["metrics"]
        for name, loss in losses.items()
    ]
    # They add up the same numbers in other orders.
    assert found[0]["test_loss"] == pytest.approx(found[1]["test_loss"], rel=1e-5)
    assert found[2]["test_loss"] == pytest.approx(found[1]["test_loss"], rel=1e-5)


@pytest.mark.parametrize("steps", [3, 5, 7])
def test_a_run_that_max_steps_ended_can_be_continued(tmp_path: Path, steps: int):
    whole = train(RECIPE, tmp_path / "whole", exact=True)
    out = tmp_path / "parts"
    assert train(RECIPE, out, exact=True, max_steps=steps)["steps"] == steps
    with pytest.raises(FolderError, match=f"has taken {steps} steps.*leave max_steps out"):
        train(RECIPE, out, exact=True, max_steps=steps, resume=True)
    again = train(RECIPE, out, 2, exact=True, resume=True)
    assert again["weights_sha256"] == whole["weights_sha256"]
    assert again["metrics"] == whole["metrics"]
    with pytest.raises(FolderError, match="finished"):
        train(RECIPE, out, exact=True, resume=True)


def test_a_killed_run_resumes_on_another_number_of_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    recipe = replace(RECIPE, precision="fp16")
    whole = train(recipe, tmp_path / "whole", exact=True)
    revive = killed_after(monkeypatch, 7, rank=1)
    with pytest.raises(ReplicaDied):
        train(recipe, tmp_path / "killed", 2, exact=True, checkpoint_every=3)
    revive()
    found = train(recipe, tmp_path / "killed", 4, exact=True, checkpoint_every=3, resume=True)
    assert found["weights_sha256"] == whole["weights_sha256"]
    assert found["metrics"] == whole["metrics"]


def test_a_resume_with_another_loss_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    revive = killed_after(monkeypatch, 4, rank=0)
    with pytest.raises(ReplicaDied):
        train(RECIPE, tmp_path / "run", 2, checkpoint_every=2)
    revive()
    with pytest.raises(FolderError, match="loss"):
        train(replace(RECIPE, loss=chosen), tmp_path / "run", resume=True)


def everything(outputs: Tensor, tags: Tensor) -> dict[str, float]:
    return {"samples": float(len(tags)), "mean": float(outputs.double().mean())}


def plain_pairs() -> Data:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(90, 6, generator=generator)
    y = (x.sum(1) > 0).long()
    samples = list(zip(x, y, strict=True))
    return Data(train=samples[:64], test=samples[64:])


PAIRS = Recipe(
    name="pairs",
    model=partial(nn.Sequential, nn.Linear(6, 2)),
    data=plain_pairs,
    loss=metrics.cross_entropy,
    metrics={"accuracy": metrics.accuracy, "all": metrics.whole(everything)},
    optimizer=torch.optim.SGD,
    learning_rate=0.1,
    global_batch=16,
    epochs=1,
)


def test_a_metric_over_the_whole_set_sees_every_sample_once(
    tmp_path: Path, numbers: tuple[int, ...]
):
    runs = [train(PAIRS, tmp_path / str(n), n, exact=True)["metrics"] for n in numbers]
    assert runs[0]["all/samples"] == 26
    assert all(run == runs[0] for run in runs)


def test_torchmetrics_agree_with_a_count_by_hand(tmp_path: Path):
    kinds = pytest.importorskip("torchmetrics.classification")
    own = {"f1": kinds.MulticlassF1Score(num_classes=2, average="micro")}
    table = {"confusion": kinds.MulticlassConfusionMatrix(num_classes=2)}
    recipe = replace(PAIRS, metrics=own | table | {"accuracy": metrics.accuracy})
    found = train(recipe, tmp_path / "run", 2, exact=True)["metrics"]
    # F1 over all classes together is the accuracy, and the table counts every sample.
    assert found["f1"] == pytest.approx(found["accuracy"])
    cells = [found[f"confusion/{a}/{b}"] for a in (0, 1) for b in (0, 1)]
    assert sum(cells) == 26
    assert cells[0] + cells[3] == pytest.approx(26 * found["accuracy"])


def test_an_optimizer_that_takes_the_model_keeps_the_ratio_of_its_rates(tmp_path: Path):
    from lockstep.engine.step.update import Update

    update = Update(RECIPE, Tagger(), torch.device("cpu"), exact=True)
    update.set_rate(0.5)
    assert [g["lr"] for g in update.optimizer.param_groups] == pytest.approx([0.05, 0.5])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"augment": (lambda images, keys: images,)}, "augment"),
        ({"channels_last": True}, "channels_last"),
        ({"batch_norm": "sync"}, "batch_norm"),
        ({"grow_to": 64}, "grow_to"),
        ({"collate": "pad"}, "collate"),
    ],
)
def test_fields_that_only_recorded_steps_know_are_refused(change: dict[str, Any], word: str):
    with pytest.raises(RecipeError, match=word):
        replace(RECIPE, **change)


@pytest.mark.parametrize("options", [{"wire": "bf16"}, {"timeline": True}, {"resident": True}])
def test_flags_that_only_recorded_steps_know_are_refused(tmp_path: Path, options: dict[str, Any]):
    with pytest.raises(PlanError, match=f"--{next(iter(options))}.*collate"):
        Job(recipe=RECIPE, out=tmp_path, **options)


def mean(outputs: Tensor, tags: Tensor) -> Tensor:
    return chosen(outputs, tags).mean()


def test_a_mean_without_a_count_is_refused(tmp_path: Path):
    with pytest.raises(RecipeError, match="one value per item"):
        train(replace(RECIPE, loss=mean), tmp_path / "run")


def test_a_batch_that_is_no_pair_is_refused(tmp_path: Path):
    def three(samples: list[Any]) -> tuple[Any, ...]:
        return (*collate(samples), 1)

    with pytest.raises(RecipeError, match=r"\(inputs, targets\)"):
        train(replace(RECIPE, collate=three), tmp_path / "run")


class Pair(NamedTuple):
    tokens: Tensor
    mask: Tensor


@dataclass
class Scores:
    values: Tensor


class Wrapped(nn.Module):
    """Returns a dataclass; takes the parts of a named tuple one by one, or the tuple as one."""

    def __init__(self, *, whole: bool) -> None:
        super().__init__()
        self.tagger = Tagger()
        if whole:
            self.forward = self.of_pair

    def forward(self, tokens: Tensor, mask: Tensor) -> Scores:
        return Scores(self.tagger(tokens, mask))

    def of_pair(self, pair: Pair) -> Scores:
        return Scores(self.tagger(pair.tokens, pair.mask))


@pytest.mark.parametrize("whole", [True, False])
def test_named_tuples_and_dataclasses_keep_their_kind(tmp_path: Path, whole: bool):
    def named(samples: list[dict[str, Tensor]]) -> tuple[Pair, Tensor]:
        inputs, tags = collate([{n: nn.functional.pad(t, (0, 12 - len(t))) for n, t in s.items()}
                                for s in samples])  # fmt: skip
        return Pair(**inputs), tags

    recipe = replace(
        RECIPE,
        model=partial(Wrapped, whole=whole),
        collate=named,
        loss=lambda outputs, tags: masked(outputs.values, tags),
        metrics={"right": metrics.whole(lambda outputs, tags: right(outputs.values, tags).mean())},
        optimizer=torch.optim.Adam,
    )
    runs = [train(recipe, tmp_path / str(n), n, exact=True, max_steps=4) for n in (1, 2)]
    assert runs[0]["weights_sha256"] == runs[1]["weights_sha256"]
    assert runs[0]["metrics"] == runs[1]["metrics"]


class Remembers:
    """A collate function that scales by all samples that it has seen."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, samples: list[dict[str, Tensor]]) -> Any:
        self.seen += len(samples)
        inputs, tags = collate(samples)
        return {**inputs, "mask": inputs["mask"] / self.seen}, tags


@pytest.mark.parametrize("workers", [0, 2])
def test_a_collate_function_with_a_memory_is_refused(tmp_path: Path, workers: int):
    job = Job(
        recipe=replace(RECIPE, collate=Remembers()),
        out=tmp_path / "run",
        replicas=4,
        exact=True,
        workers=workers,
    )
    with pytest.raises(DataError, match="remembers what it read before"):
        launch(job, device="cpu", console=Console(quiet=True))


def test_a_recipe_may_number_the_words_of_a_set(tmp_path: Path):
    path = tmp_path / "words.py"
    path.write_text(
        "import lockstep, torch\n"
        "words = {f'word {n}' for n in range(50)}\n"
        "X = torch.tensor([[float(w[5:])] for w in words])\n"
        "data = lockstep.Tensors(X, X)\n"
        "recipe = lockstep.Recipe(name='words', model=lambda: torch.nn.Linear(1, 1),\n"
        "    data=lambda: lockstep.Data(train=data, test=data), learning_rate=1e-5,\n"
        "    loss=lockstep.metrics.squared_error, optimizer=torch.optim.SGD, global_batch=8,\n"
        "    metrics={'error': lockstep.metrics.squared_error}, epochs=1, lower_is_better=True)\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    found = set()
    for run in "ab":
        command = [sys.executable, "-m", "lockstep", "train", str(path), "--exact", "--json"]
        done = subprocess.run(
            [*command, "--out", str(tmp_path / run)], env=env, capture_output=True, check=True
        )
        found.add(json.loads(done.stdout)["weights_sha256"])
    assert len(found) == 1
