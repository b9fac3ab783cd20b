"""One step of a Loop is the step of plain PyTorch on the whole batch, whoever computes it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from lockstep.engine.sampler import GlobalOrder
from programs import HEAD, run, written

DOUBLE = HEAD.replace("X, Y = torch.randn(70, 6,", "X, Y = torch.randn(70, 6, dtype=torch.float64,")
NET = """
def build():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double()
"""


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "weights.safetensors")


def build() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double()


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(70, 6, dtype=torch.float64, generator=generator)
    return x, torch.randint(0, 3, (70,), generator=generator)


def plain(loss: object, optimizer: object, clip: float | None = None) -> nn.Module:
    """Train two epochs in plain PyTorch, in the order of lockstep."""
    model, (x, y) = build(), data()
    steps, order = optimizer(model.parameters()), GlobalOrder(70, 16, 0)  # type: ignore[operator]
    for epoch in range(2):
        for batch in range(5):
            mine = order.batch(epoch, batch)
            steps.zero_grad()
            loss(model, x[mine], y[mine]).backward()  # type: ignore[operator]
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            steps.step()
    return model


PROGRAM = """
torch.manual_seed(5)
net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double()
with lockstep.Loop(global_batch=16, exact={exact}) as loop:
    model = loop.model(net)
    optimizer = loop.optimizer(torch.optim.{optimizer}, clip={clip})
    batches = loop.batches(DATA)
    {loss}
    for epoch in loop.epochs(2):
        for batch in batches:
            {step}
"""
MEAN = """
    def loss(batch):
        x, y = batch
        return F.cross_entropy(model(x), y, reduction="sum"), len(y)
"""
WEIGHTED = """
    def loss(batch):
        x, y = batch
        w = 1.0 + y.double()
        return F.cross_entropy(model(x), y, reduction="none"), w
"""
MASKED = """
    def loss(batch):
        x, y = batch
        kept = x[:, 0] > 0
        return F.cross_entropy(model(x)[kept], y[kept], reduction="sum"), kept.sum()
"""
STEP = "loop.step(batch, loss, optimizer)"
SGD, ADAM = "SGD(model.parameters(), lr=0.1, momentum=0.9)", "AdamW(model.parameters(), lr=0.01)"


KINDS = {
    SGD: partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    ADAM: partial(torch.optim.AdamW, lr=0.01),
}


def mean(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(x), y)


def weighted(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    w = 1.0 + y.double()
    losses = functional.cross_entropy(model(x), y, reduction="none")
    return (losses * w).sum() / w.sum()


def masked(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    kept = x[:, 0] > 0
    return functional.cross_entropy(model(x)[kept], y[kept])


def pairs(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    rows = functional.normalize(model(x), dim=1)
    return functional.cross_entropy(3 * rows @ rows.T, y)


ACROSS = """
    def encode(batch):
        return {"rows": F.normalize(model(batch[0]), dim=1), "y": batch[1]}
    def loss(found):
        scores = 3 * found["rows"] @ found["rows"].T
        return F.cross_entropy(scores, found["y"], reduction="sum"), len(scores)
"""
ACROSS_STEP = "loop.step_across(batch, encode, loss, optimizer)"
CASES = {
    "mean": (MEAN, STEP, SGD, None, mean),
    "clipped": (MEAN, STEP, SGD, 0.1, mean),
    "weighted": (WEIGHTED, STEP, ADAM, None, weighted),
    "masked": (MASKED, STEP, ADAM, None, masked),
    "across": (ACROSS, ACROSS_STEP, SGD, None, pairs),
}


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_a_step_is_that_of_plain_pytorch(case: str, exact: bool, tmp_path: Path):
    loss, step, optimizer, clip, function = CASES[case]
    body = PROGRAM.format(exact=exact, optimizer=optimizer, clip=clip, loss=loss.strip(), step=step)
    path = written(tmp_path, body, DOUBLE)
    expected = plain(function, KINDS[optimizer], clip).state_dict()
    for replicas in (1, 2):
        run(path, tmp_path / str(replicas), replicas)
        found = weights(tmp_path / str(replicas))
        for name, tensor in expected.items():
            # Ten steps in float64: what differs is the order of the sums.
            torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-11)


TWO = """
with lockstep.Loop(global_batch=16, exact=True) as loop:
    first, second = loop.model(Net(), "first"), loop.model(Net(), "second")
    a = loop.optimizer(torch.optim.SGD(first.parameters(), lr=0.1), name="a")
    b = loop.optimizer(torch.optim.SGD(second.parameters(), lr=0.1), name="b")
    batches = loop.batches(DATA)
    before = [p.clone() for p in second.parameters()]
    def loss(batch):
        x, y = batch
        return F.cross_entropy(first(x) + second(x), y, reduction="sum"), len(y)
    for epoch in loop.epochs(1):
        for batch in batches:
            loop.step(batch, loss, a)
            assert all(p.grad is None for p in second.parameters())
            assert all(torch.equal(p, q) for p, q in zip(second.parameters(), before))
"""


def test_a_step_of_one_optimizer_leaves_other_models_alone(tmp_path: Path):
    path = written(tmp_path, TWO)
    hashes = {run(path, tmp_path / str(n), n)["weights_sha256"] for n in (1, 2)}
    assert len(hashes) == 1


UNFREEZE = """
with lockstep.Loop(global_batch=16, exact=True) as loop:
    model = loop.model(Net())
    model.a.requires_grad_(False)
    optimizer = loop.optimizer(torch.optim.AdamW(model.parameters(), lr=0.01))
    frozen = model.a.weight.clone()
    batches = loop.batches(DATA)
    def loss(batch):
        x, y = batch
        return F.cross_entropy(model(x), y, reduction="sum"), len(y)
    for epoch in loop.epochs(2):
        assert torch.equal(frozen, model.a.weight) or epoch
        model.a.requires_grad_(epoch > 0)
        for batch in batches:
            loop.step(batch, loss, optimizer)
    assert not torch.equal(frozen, model.a.weight)
"""


def test_layers_may_be_unfrozen_on_the_way(tmp_path: Path):
    path = written(tmp_path, UNFREEZE)
    hashes = {run(path, tmp_path / str(n), n)["weights_sha256"] for n in (1, 2, 4)}
    assert len(hashes) == 1


TUPLES = """
MORE = [(x, ) for x in X[:50]]
with lockstep.Loop(global_batch=16, exact={exact}) as loop:
    model = loop.model(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)))
    optimizer = loop.optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    labelled, unlabelled = loop.batches(DATA), loop.batches(MORE)
    def loss(batches):
        first, second = batches
        x, y = first
        total = F.cross_entropy(model(x), y, reduction="sum")
        if second is not None:
            total = total + 0.1 * model(second[0]).square().sum()
        return total, len(y)
    for epoch in loop.epochs(2):
        for pair in zip(labelled, unlabelled):
            loop.step(pair, loss, optimizer)
"""


def test_two_loaders_are_zipped_into_one_step(tmp_path: Path):
    path = written(tmp_path, TUPLES.format(exact=True))
    summaries = [run(path, tmp_path / str(n), n) for n in (1, 2, 4)]
    assert len({s["weights_sha256"] for s in summaries}) == 1
    assert summaries[0]["steps"] == 2 * 4  # the shorter set ends the epoch
