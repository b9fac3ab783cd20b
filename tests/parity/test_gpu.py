"""The promise on a GPU: several replicas share one over gloo; NCCL with one replica."""

from __future__ import annotations

import copy
import gc
import json
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.optim import SGD, Adam, AdamW

from layers import LAYERWISE
from lockstep import data, models
from lockstep.cluster.launch import launch
from lockstep.console import Console, Progress
from lockstep.engine.exchange.compression.bf16 import bf16
from lockstep.engine.exchange.compression.powersgd import PowerSGD
from lockstep.engine.exchange.hooks import OverlappedExchange, attach
from lockstep.engine.exchange.reduce import ExactReduce
from lockstep.engine.loop import train
from lockstep.engine.recipe.builtin import RECIPES
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.run.receipts import read
from lockstep.processes.replicas import run_replicas
from lockstep.scaling.optimizers.layerwise import norms
from lockstep.world import gpu_count, use_deterministic_blas
from replicas import OnNccl, digits_subset, small

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(gpu_count() == 0, reason="needs a CUDA device"),
]


def on_gpu(recipe: Recipe, out: Path, replicas: int = 1, **options: Any) -> dict[str, Any]:
    options = {"checkpoint_every": 0, "share_gpu": replicas > 1, **options}
    job = Job(recipe=recipe, out=out, replicas=replicas, **options)
    return launch(job, device="cuda", console=Console(as_json=True))


def same_receipts(folder: Path, *runs: str) -> bool:
    """Return whether the runs hold equal receipts, of all their steps."""
    found = [[r[:3] for r in read(folder / run / "receipts.bin")] for run in runs]
    steps = [place[0] for place in found[0]]
    return steps == list(range(len(steps))) and all(one == found[0] for one in found)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"precision": "bf16"},
        {"precision": "tf32"},
        {"global_batch": 8, "epochs": 8, "grow_to": 32},
        *({"optimizer": kind} for kind in LAYERWISE),
    ],
    ids=str,
)
def test_1_2_and_4_replicas_end_in_the_same_bits(tmp_path: Path, changes: dict):
    recipe = small(100, **changes)
    runs = [on_gpu(recipe, tmp_path / str(n), n, exact=True) for n in (1, 2, 4)]
    assert len({run["weights_sha256"] for run in runs}) == 1
    assert same_receipts(tmp_path, "1", "2", "4")


def test_a_norm_has_the_same_bits_wherever_its_operand_lies():
    # In a process of its own: replicas are forked, and CUDA does not survive that.
    def work(rank: int, store: str) -> int:
        values = torch.randn(300, 301, generator=torch.Generator().manual_seed(0)).cuda()
        found = set()
        for offset in range(17):
            there = torch.empty(values.numel() + offset, device="cuda")[offset:].view_as(values)
            found.add(norms([there.copy_(values)]).item())
        return len(found)

    assert run_replicas(1, work) == 1


def test_cifar10_fast_on_1_2_and_4_replicas_ends_in_the_same_bits(tmp_path: Path):
    recipe = replace(
        RECIPES["cifar10-fast"],
        model=partial(models.quicknet, widths=(8, 16, 16)),
        data=partial(data.synthetic, samples=200, test_samples=40, shape=(3, 32, 32), classes=10),
        global_batch=64,
        epochs=2,
    )
    runs = [on_gpu(recipe, tmp_path / str(n), n, exact=True) for n in (1, 2, 4)]
    assert len({run["weights_sha256"] for run in runs}) == 1


def test_gpt_on_1_and_2_replicas_ends_in_the_same_bits(tmp_path: Path):
    recipe = replace(
        RECIPES["stdlib"],
        model=partial(models.gpt, layers=2, width=64, length=64, dropout=0.1),
        data=partial(data.stdlib, length=64, megabytes=0.1),
        epochs=1,
    )
    runs = [
        on_gpu(recipe, tmp_path / str(n), n, exact=True, max_steps=10, timeline=True)
        for n in (1, 2)
    ]
    assert len({run["weights_sha256"] for run in runs}) == 1
    assert runs[1]["timeline"][1]["step"] > 0


def test_fast_mode_on_2_replicas_learns(tmp_path: Path):
    run = on_gpu(replace(RECIPES["digits"], epochs=10), tmp_path / "run", 2, timeline=True)
    assert run["metrics"]["accuracy"] > 0.95


@pytest.mark.parametrize("wire", ["fp32", "bf16", "powersgd"])
def test_every_wire_learns_on_2_replicas(tmp_path: Path, wire: str):
    recipe = replace(RECIPES["digits"], epochs=10)
    run = on_gpu(recipe, tmp_path / "run", 2, wire=wire, timeline=True)
    assert run["metrics"]["accuracy"] > 0.95


def test_the_wires_on_nccl_give_the_gradient_of_a_plain_model():
    def work(rank: int, store: str) -> list[bool]:
        torch.cuda.set_device(0)
        dist.init_process_group("nccl", store=dist.FileStore(store, 1), rank=0, world_size=1)
        results = []
        # The second step of PowerSGD compresses what the first has seen: a matrix of rank one.
        for exchange, rounds in ((bf16, 1), (PowerSGD(whole=1), 3)):
            torch.manual_seed(0)
            plain = torch.nn.Linear(64, 64).cuda()
            ddp = torch.nn.parallel.DistributedDataParallel(
                copy.deepcopy(plain), device_ids=[0], gradient_as_bucket_view=True
            )
            attach(ddp, OverlappedExchange(exchange, 60.0))
            for _ in range(rounds):
                for model in (plain, ddp):
                    model.zero_grad()
                    model(torch.ones(1, 64, device="cuda")).square().sum().backward()
            own, theirs = plain.weight.grad, ddp.module.weight.grad
            # bfloat16 rounds by 2**-8; a matrix of rank one survives in float32.
            results.append(torch.allclose(own, theirs, rtol=2**-8, atol=1e-4))
            del ddp, model
        gc.collect()
        dist.destroy_process_group()
        return results

    assert run_replicas(1, work) == [True] * 2


def test_resume_on_other_replicas_keeps_the_bits(tmp_path: Path):
    recipe = small(100, epochs=3)
    whole = on_gpu(recipe, tmp_path / "whole", 1, exact=True)
    out = tmp_path / "parts"
    on_gpu(recipe, out, 2, exact=True, checkpoint_every=5, max_steps=5)
    parts = on_gpu(recipe, out, 4, exact=True, resume=True)
    assert parts["weights_sha256"] == whole["weights_sha256"]


def test_workers_with_pinned_memory_give_what_resident_data_give(tmp_path: Path):
    runs = [
        on_gpu(small(100), tmp_path / str(resident), exact=True, resident=resident, workers=1)
        for resident in (True, False)
    ]
    assert runs[0]["weights_sha256"] == runs[1]["weights_sha256"]


def test_the_hook_on_nccl_adds_what_a_plain_model_adds():
    def work(rank: int, store: str) -> list[bool]:
        use_deterministic_blas()
        warnings.filterwarnings("ignore", message="Grad strides do not match")
        torch.cuda.set_device(0)
        torch.use_deterministic_algorithms(True)
        dist.init_process_group("nccl", store=dist.FileStore(store, 1), rank=0, world_size=1)
        results = []
        for shards in (1, 2, 4, 8):
            torch.manual_seed(0)
            plain = models.wideresnet(10, 1, channels=1).cuda()
            plain = plain.to(memory_format=torch.channels_last)
            torch.manual_seed(0)
            wrapped = models.wideresnet(10, 1, channels=1).cuda()
            wrapped = wrapped.to(memory_format=torch.channels_last)
            ddp = torch.nn.parallel.DistributedDataParallel(
                wrapped, device_ids=[0], bucket_cap_mb=0.1, gradient_as_bucket_view=True
            )
            for model in (plain, ddp):
                reduce = ExactReduce.attach(model)
                for number in range(shards):
                    torch.manual_seed(number)
                    with reduce.part(number, shards):
                        images = torch.randn(4, 1, 8, 8, device="cuda")
                        images = images.contiguous(memory_format=torch.channels_last)
                        reduce.weigh(model(images).square().sum(), 37).backward()
            pairs = zip(plain.parameters(), wrapped.parameters(), strict=True)
            results.append(all(torch.equal(a.grad, b.grad) for a, b in pairs))
            del ddp, wrapped, reduce, model
        gc.collect()
        dist.destroy_process_group()
        return results

    assert run_replicas(1, work) == [True] * 4


def test_data_move_to_the_gpu_and_back_unchanged():
    def work(rank: int, store: str) -> bool:
        subset = digits_subset(50).train.to(torch.device("cuda"))
        inputs, _ = subset.take(torch.arange(50, device="cuda"))
        return torch.equal(inputs.cpu(), digits_subset(50).train.inputs)

    assert run_replicas(1, work)


def test_the_summary_names_the_gpu(tmp_path: Path):
    run = on_gpu(small(40, epochs=1), tmp_path / "run")
    assert run["machine"]["device"] != "cpu"
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"


# How a step is executed


def without_chance(**changes: Any) -> Recipe:
    """Many steps of one shape, and sums long enough to round."""
    return small(128, **{"epochs": 12, "learning_rate": 0.02, **changes})


@pytest.mark.parametrize("micro_batch", [None, 8])
def test_a_recorded_step_is_the_written_one(tmp_path: Path, micro_batch: int | None):
    # Kernels that add in a fixed order: then the bits must agree, and nothing may be left out.
    runs = [
        on_gpu(without_chance(), tmp_path / speed, speed=speed, exact=True)
        for speed in ("eager", "graph")
    ]
    assert runs[1]["speed"]["name"] == "graph"
    assert runs[0]["weights_sha256"] == runs[1]["weights_sha256"]
    assert same_receipts(tmp_path, "eager", "graph")
    fast = on_gpu(without_chance(), tmp_path / "fast", speed="graph", micro_batch=micro_batch)
    assert fast["speed"]["name"] == "graph"
    assert fast["metrics"]["test_loss"] == pytest.approx(runs[0]["metrics"]["test_loss"], abs=0.1)


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("kind", [SGD, Adam, AdamW, *LAYERWISE], ids=lambda kind: kind.__name__)
def test_recorded_steps_follow_the_rate_the_samples_and_the_epoch(
    tmp_path: Path, kind: type, resident: bool
):
    recipe = without_chance(optimizer=kind, learning_rate=1e-3, clip=1.0, warmup=2.0)
    runs = [
        on_gpu(recipe, tmp_path / s, speed=s, exact=True, resident=resident, workers=1)
        for s in ("eager", "graph")
    ]
    assert runs[1]["speed"]["name"] == "graph"
    assert runs[0]["weights_sha256"] == runs[1]["weights_sha256"]


def test_blocks_of_recorded_steps_are_the_written_ones(tmp_path: Path):
    # 40 full steps in an epoch and a short one: five blocks, or four and eight single steps.
    recipe = small(
        40 * 32 + 7,
        model=partial(models.mlp, (64, 32, 10), 0.1),
        shards=1,
        epochs=3,
        warmup=0.5,
        clip=1.0,
    )
    runs = [
        on_gpu(recipe, tmp_path / str(n), speed=speed, exact=True, checkpoint_every=every)
        for n, (speed, every) in enumerate([("eager", 0), ("graph", 0), ("graph", 3)])
    ]
    assert "8 steps in one launch" in runs[1]["speed"]["why"]
    assert len({run["weights_sha256"] for run in runs}) == 1
    assert same_receipts(tmp_path, "0", "1", "2")


@pytest.mark.parametrize("exact", [True, False])
def test_a_batch_that_grows_is_recorded_anew(tmp_path: Path, exact: bool):
    recipe = small(
        163,
        model=partial(models.mlp, (64, 32, 10), 0.1),
        global_batch=8,
        epochs=16,
        grow_to=32,
    )
    runs = [
        on_gpu(recipe, tmp_path / speed, speed=speed, exact=exact) for speed in ("eager", "graph")
    ]
    assert len({run["weights_sha256"] for run in runs}) == 1
    assert runs[1]["speed"]["name"] == "graph"
    assert runs[1]["steps"] < 16 * 21


def test_auto_finds_that_a_graph_is_faster_and_equal(tmp_path: Path):
    run = on_gpu(without_chance(epochs=40), tmp_path / "run")
    assert run["speed"]["name"] == "graph"
    assert set(run["speed"]["milliseconds"]) == {"eager", "graph"}


def test_compiled_steps_stay_within_rounding_of_eager_ones(tmp_path: Path):
    # The bound is the one that --speed auto derives: a path beyond it is refused.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lockstep.engine.step.path_search.COMPILE_PAYS", {"cuda": 0.0})
        run = on_gpu(without_chance(epochs=40), tmp_path / "run")
    assert "compile" in run["speed"]["milliseconds"], run["speed"]["why"]


class Asking(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.inner(x)
        return out * 1.0 if out.abs().max().item() < 1e9 else out


@pytest.mark.parametrize("speed", ["auto", "graph"])
def test_a_model_that_asks_the_device_for_a_value_stays_eager(tmp_path: Path, speed: str):
    run = on_gpu(without_chance(model=Asking), tmp_path / "run", speed=speed)
    assert run["speed"]["name"] == "eager"
    assert ".item()" in run["speed"]["why"]


class Slow(torch.optim.Optimizer):
    """An optimizer of the user's, with its rate as a number."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad, alpha=group["lr"])


def test_an_optimizer_of_the_users_stays_eager(tmp_path: Path):
    run = on_gpu(without_chance(optimizer=Slow), tmp_path / "run", speed="graph")
    assert run["speed"]["name"] == "eager"
    assert "Slow" in run["speed"]["why"]


def test_replicas_that_share_a_gpu_say_why_they_are_not_recorded(tmp_path: Path):
    run = on_gpu(without_chance(), tmp_path / "run", 2, speed="graph")
    assert run["speed"]["name"] == "eager"
    assert "gloo" in run["speed"]["why"]


@pytest.mark.parametrize("exact", [False, True])
def test_a_recorded_step_exchanges_on_nccl(tmp_path: Path, exact: bool):
    def run(speed: str, rank: int, store: str) -> dict[str, Any]:
        job = Job(recipe=without_chance(), out=tmp_path / speed, speed=speed, exact=exact, keep=1)
        return train(job, OnNccl(Path(store)), Progress())

    runs = {speed: run_replicas(1, partial(run, speed)) for speed in ("eager", "graph")}
    assert runs["graph"]["speed"]["name"] == "graph", runs["graph"]["speed"]["why"]
    if exact:
        assert runs["graph"]["weights_sha256"] == runs["eager"]["weights_sha256"]
    else:
        losses = [run["metrics"]["test_loss"] for run in runs.values()]
        assert losses[0] == pytest.approx(losses[1], abs=0.1)
