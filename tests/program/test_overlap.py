"""Gradients that travel during backward are those that travel after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lockstep.engine.program.overlap import Overlap
from lockstep.engine.program.tree import Gradients
from lockstep.errors import RecipeError
from programs import HEAD, PLAIN, run, written

FAST = PLAIN.replace("exact=True", "exact=False").replace(
    # Not AdamW, which divides by the size of a gradient, also of one that is zero but for rounding.
    "AdamW(model.parameters(), lr=1e-2)",
    "SGD(model.parameters(), lr=0.05, momentum=0.9)",
)
DEEP = HEAD.replace(
    "self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 3)",
    """self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 3)
        self.more = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))""",
)
STEPS = DEEP.replace(
    "return self.b(self.dropout(torch.relu(self.norm(self.a(x)))))",
    """x = torch.relu(self.norm(self.a(x)))
        for layer in self.more:
            x = x + torch.tanh(layer(x))
        return self.b(self.dropout(x))""",
)
SKIPPED = STEPS.replace(
    "            x = x + torch.tanh(layer(x))",
    """            if random.random() < 0.6:
                x = x + torch.tanh(layer(x))""",
)
TWICE = STEPS.replace("nn.Dropout(0.2)", "nn.Dropout(0.0)").replace(
    "            x = x + torch.tanh(layer(x))",
    """            for _ in range(2):
                x = x + torch.utils.checkpoint.checkpoint(
                    lambda y, layer=layer: torch.tanh(layer(y)), x, use_reentrant=True)""",
)


@pytest.fixture
def small_buckets(gloo: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients travel in many small messages over gloo."""
    monkeypatch.setattr("lockstep.engine.program.overlap.LEAST", 0)
    monkeypatch.setattr("lockstep.engine.program.overlap.best_bucket", lambda *_: 300.0)


@pytest.fixture
def early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """How many buckets had started when each last backward pass of replica 0 ended."""
    log, plain = tmp_path / "early", Overlap.complete

    def complete(self: Overlap, gradients: Gradients) -> None:
        if self.carrier.group.world.is_first:
            with log.open("a") as file:
                file.write(f"{len(self.under_way)}\n")
        plain(self, gradients)

    monkeypatch.setattr(Overlap, "complete", complete)
    return lambda: [int(line) for line in log.read_text().split()] if log.exists() else []


def largest_difference(first: Path, second: Path) -> float:
    pairs = [load_file(folder / "weights.safetensors") for folder in (first, second)]
    return max(float((pairs[0][n].double() - pairs[1][n].double()).abs().max()) for n in pairs[0])


def in_double(text: str) -> str:
    """The same program in float64, so that another order of sums moves the last digits only."""
    return "import torch\ntorch.set_default_dtype(torch.float64)\n" + text


# Ten steps in float64.
CLOSE = 1e-12


@pytest.mark.usefixtures("small_buckets")
@pytest.mark.parametrize("micro_batch", [None, 4], ids=["one part", "parts"])
def test_the_weights_are_those_of_one_replica(
    micro_batch: int | None, tmp_path: Path, early: Callable[[], list[int]]
):
    # The last of 65 samples leaves all replicas but one without any.
    path = written(tmp_path, FAST.replace("DATA", "DATA[:65]"), in_double(STEPS))
    for number in (1, 2, 4):
        run(path, tmp_path / str(number), number, micro_batch=micro_batch)
    assert largest_difference(tmp_path / "1", tmp_path / "2") < CLOSE
    assert largest_difference(tmp_path / "1", tmp_path / "4") < CLOSE
    started = early()
    # Two runs of ten steps; the first step of each only watches.
    assert len(started) == 20
    assert started[0] == started[10] == 0
    assert max(started) > 2


@pytest.mark.usefixtures("small_buckets")
def test_skipped_layers_are_added_as_without_overlap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = written(tmp_path, FAST, in_double(SKIPPED))
    run(path, tmp_path / "with", 2)
    monkeypatch.setattr("lockstep.engine.program.exchange.Carrier.overlaps", False)
    run(path, tmp_path / "without", 2)
    # Two replicas: a sum of two has the same bits in any order.
    assert largest_difference(tmp_path / "with", tmp_path / "without") == 0.0


@pytest.mark.usefixtures("small_buckets")
def test_a_layer_that_becomes_ready_twice_is_sent_after_backward(
    tmp_path: Path, early: Callable[[], list[int]]
):
    path = written(tmp_path, FAST, in_double(TWICE))
    for number in (1, 2):
        run(path, tmp_path / str(number), number)
    assert largest_difference(tmp_path / "1", tmp_path / "2") < CLOSE
    assert set(early()) == {0}


@pytest.mark.usefixtures("small_buckets")
def test_a_layer_that_becomes_ready_twice_later_is_refused(tmp_path: Path):
    later = TWICE.replace("range(2)", "range(1 + (CALLS[0] > 6))").replace(
        "        for layer in self.more:",
        "        CALLS[0] += self.training\n        for layer in self.more:",
    )
    body = FAST.replace("exact=False", "exact=False, check_every=0")
    path = written(tmp_path, "CALLS = [0]\n" + body, in_double(later))
    with pytest.raises(RecipeError, match=r"second gradient.*use_reentrant=False"):
        run(path, tmp_path / "out", 2)


@pytest.mark.usefixtures("small_buckets")
def test_layers_that_are_unfrozen_get_buckets(tmp_path: Path, early: Callable[[], list[int]]):
    body = FAST.replace(
        "    for epoch in loop.epochs(2):",
        """    model.more.requires_grad_(False)
    for epoch in loop.epochs(2):
        model.more.requires_grad_(epoch > 0)""",
    )
    path = written(tmp_path, body, in_double(STEPS))
    for number in (1, 2):
        run(path, tmp_path / str(number), number)
    assert largest_difference(tmp_path / "1", tmp_path / "2") < CLOSE
    assert max(early()[:5]) < max(early()[5:])


@pytest.mark.usefixtures("small_buckets")
def test_losses_over_the_whole_batch_come_before_others(tmp_path: Path):
    body = FAST.replace(
        "            loop.step(batch, loss, optimizer)",
        """            if batch.number < 2:
                loop.step_across(batch, lambda b: (model(b[0]), b[1]), whole, optimizer)
            else:
                loop.step(batch, loss, optimizer)""",
    ).replace(
        "    for epoch in loop.epochs(2):",
        """    def whole(found):
        return F.cross_entropy(found[0], found[1], reduction="sum"), len(found[1])
    for epoch in loop.epochs(2):""",
    )
    path = written(tmp_path, body, in_double(STEPS))
    for number in (1, 2):
        run(path, tmp_path / str(number), number)
    assert largest_difference(tmp_path / "1", tmp_path / "2") < CLOSE


@pytest.mark.usefixtures("small_buckets")
def test_two_optimizers_overlap_apart(tmp_path: Path):
    body = (
        FAST.replace(
            "    batches = loop.batches(DATA)",
            """    other = loop.model(Net(), "other")
    second = loop.optimizer(torch.optim.SGD(other.parameters(), lr=0.1), name="second")
    batches = loop.batches(DATA)""",
        )
        .replace(
            "            loop.step(batch, loss, optimizer)",
            """            loop.step(batch, loss, optimizer)
            loop.step(batch, apart, second)""",
        )
        .replace(
            "    for epoch in loop.epochs(2):",
            """    def apart(batch):
        x, y = batch
        return (model(x) - other(x)).square().sum(), len(y)
    for epoch in loop.epochs(2):""",
        )
    )
    path = written(tmp_path, body, in_double(STEPS))
    for number in (1, 2):
        run(path, tmp_path / str(number), number)
    assert largest_difference(tmp_path / "1", tmp_path / "2") < CLOSE


def test_shared_memory_and_exact_mode_send_after_backward(
    tmp_path: Path, early: Callable[[], list[int]]
):
    run(written(tmp_path, FAST), tmp_path / "fast", 2)
    run(written(tmp_path, PLAIN), tmp_path / "exact", 2)
    assert early() == []
    assert torch.get_default_dtype() == torch.float32
