"""Recipes that are refused, because they would differ on a different number of replicas."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

from lockstep.data import Data
from lockstep.engine.recipe.job import Job
from lockstep.errors import DataError, NotFinite, PlanError, RecipeError
from lockstep.models import wideresnet
from replicas import digits_subset, small, train


class Own(nn.Module):
    """A small model with a place for something odd."""

    def __init__(self, odd: nn.Module | None = None) -> None:
        super().__init__()
        self.first, self.odd, self.last = nn.Linear(64, 8), odd or nn.Identity(), nn.Linear(8, 10)

    def forward(self, x):
        return self.last(self.odd(self.first(x.flatten(1))))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.calls += 1
        return x


class MyNorm(nn.BatchNorm1d):
    """A batch norm of the user's."""


class Unused(Own):
    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(2, 2)


def with_model(build) -> object:
    return small(model=build, channels_last=False)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_parameter_that_the_loss_does_not_use_is_named(tmp_path: Path, replicas: int):
    with pytest.raises(RecipeError, match=r"spare\.weight, spare\.bias"):
        train(with_model(Unused), tmp_path / "run", replicas)


def test_a_batch_norm_of_the_user_s_is_refused(tmp_path: Path):
    with pytest.raises(RecipeError, match="odd is a MyNorm"):
        train(with_model(lambda: Own(MyNorm(8))), tmp_path / "run")


def test_a_buffer_that_counts_passes_is_refused_in_exact_mode_and_warned_of_in_fast(
    tmp_path: Path, capfd
):
    recipe = with_model(lambda: Own(Counting()))
    with pytest.raises(RecipeError, match=r"odd\.calls"):
        train(recipe, tmp_path / "exact", exact=True)
    train(recipe, tmp_path / "fast")
    assert "odd.calls" in capfd.readouterr().err


def test_a_model_with_nothing_to_train_is_refused(tmp_path: Path):
    with pytest.raises(RecipeError, match="nothing to train"):
        train(with_model(lambda: Own().requires_grad_(False)), tmp_path / "run", 2)


def test_a_failed_start_leaves_the_folder_usable(tmp_path: Path):
    with pytest.raises(RecipeError):
        train(with_model(Unused), tmp_path / "run")
    out = tmp_path / "other"
    with pytest.raises(RecipeError, match="broken"):
        train(small(data=broken), out)
    train(small(), out, max_steps=1)


def broken() -> Data:
    raise OSError("broken")


def test_random_data_and_weights_depend_on_the_seed_alone(tmp_path: Path):
    def data() -> Data:
        whole = digits_subset(80, 40)
        order = numpy.random.permutation(80)
        whole.train.inputs = whole.train.inputs[order]
        return whole

    def model() -> nn.Module:
        network = wideresnet(10, 1, channels=1)
        network.head.bias.data.fill_(float(numpy.random.rand()))
        return network

    recipe = small(data=data, model=model)
    runs = [train(recipe, tmp_path / str(n), n, exact=True) for n in (1, 2)]
    assert runs[0]["weights_sha256"] == runs[1]["weights_sha256"]


def test_data_without_an_index_are_refused(tmp_path: Path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([])

    with pytest.raises(DataError, match="map-style"):
        train(small(data=lambda: Data(train=Stream(), test=Stream())), tmp_path / "run")


def test_samples_that_are_dicts_are_refused(tmp_path: Path):
    class Dicts(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int):
            return {"x": torch.zeros(2)}, torch.zeros(1)

    with pytest.raises(DataError, match="return two tensors"):
        train(small(data=lambda: Data(train=Dicts(), test=Dicts())), tmp_path / "run", workers=0)


def test_parameter_groups_keep_their_own_rates(tmp_path: Path):
    def optimizer(parameters, lr: float):
        first, *rest = parameters
        return torch.optim.SGD([{"params": [first], "lr": 0.0}, {"params": rest}], lr=lr)

    from safetensors.torch import load_file

    train(small(optimizer=optimizer), tmp_path / "run", max_steps=3)
    short = train(small(optimizer=optimizer), tmp_path / "short", max_steps=1)
    weights = [load_file(tmp_path / n / "weights.safetensors") for n in ("run", "short")]
    assert short["steps"] == 1
    assert torch.equal(weights[0]["stem.weight"], weights[1]["stem.weight"])
    assert not torch.equal(weights[0]["head.weight"], weights[1]["head.weight"])


def test_a_plain_convolution_with_view_trains(tmp_path: Path):
    class Classic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(144, 10)

        def forward(self, x):
            return self.head(self.conv(x).relu().view(len(x), -1))

    train(with_model(Classic), tmp_path / "run", 2, max_steps=2)


def test_weights_that_end_infinite_are_no_success(tmp_path: Path):
    recipe = small(learning_rate=1e38, warmup=0.0, schedule=lambda progress: 1.0)
    with pytest.raises(NotFinite):
        train(recipe, tmp_path / "run", max_steps=1)


def test_the_logs_up_to_a_loss_that_is_no_number_are_written(tmp_path: Path):
    steps = 0

    def loss(outputs, targets):
        nonlocal steps
        steps += outputs.requires_grad
        losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
        # The first step is also computed in another division, by four more calls.
        return losses * float("nan") if steps == 13 + 4 else losses

    with pytest.raises(NotFinite, match="step 13"):
        train(small(20 * 32, model=Own, loss=loss), tmp_path / "run")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [5, 10]


class Functional(Own):
    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.1, self.training)


class Counter(torch.optim.SGD):
    """Counts on itself, where no checkpoint looks."""

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        return super().step(closure)


def test_fast_mode_warns_of_a_model_that_draws_from_torchs_own_generator(tmp_path, capfd):
    train(with_model(Functional), tmp_path / "fast")
    assert "draws from torch's own generator" in capfd.readouterr().err
    train(with_model(Functional), tmp_path / "exact", exact=True)
    train(with_model(Own), tmp_path / "none")
    assert "draws from torch's own generator" not in capfd.readouterr().err


def test_an_optimizer_that_counts_where_no_checkpoint_looks_is_named(tmp_path, capfd):
    train(replace(with_model(Own), optimizer=Counter), tmp_path / "counts")
    assert "Counter.steps, which is in no checkpoint" in capfd.readouterr().err
    train(with_model(Own), tmp_path / "plain")
    assert "in no checkpoint" not in capfd.readouterr().err


@pytest.mark.parametrize("replicas", [1, 2])
def test_an_error_in_the_first_step_is_quoted(tmp_path: Path, replicas: int):
    narrow = with_model(lambda: nn.Sequential(nn.Flatten(), nn.Linear(63, 10)))
    with pytest.raises(RecipeError, match=r"^the first step of digits raised RuntimeError: mat1"):
        train(narrow, tmp_path / "run", replicas)


def test_a_rate_that_would_be_replaced_is_refused():
    with pytest.raises(RecipeError, match="--learning-rate"):
        small(optimizer=partial(torch.optim.SGD, lr=3.0))


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"bucket_mb": 1e30}, "--bucket-mb 1e"),
        ({"bucket_mb": 0.0}, "--bucket-mb 0"),
        ({"timeout": 1e30}, "--timeout 1e"),
        ({"threads": 10**6}, "--threads 1000000"),
    ],
    ids=str,
)
def test_numbers_that_no_machine_can_follow_are_refused(tmp_path: Path, options, flag: str):
    with pytest.raises(PlanError, match=flag):
        Job(recipe=small(), out=tmp_path, **options)
