"""How a step is executed: what was asked, what was possible, and that it stays the same step."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lockstep import models
from lockstep.console import Progress
from lockstep.engine.group import Group
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.replica import Replica
from lockstep.engine.run.checkpoint import Checkpoint
from lockstep.engine.step.cuda_graph import Blocks, Captured
from lockstep.engine.step.metrics import Meter
from lockstep.engine.step.path_search import COMPILE_PAYS, PathSearch
from lockstep.engine.step.rollback import Rollback
from lockstep.engine.step.training_step import Taken, TrainingStep
from lockstep.errors import PlanError
from lockstep.world import World
from replicas import in_double, on_replicas, small, train

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")


def even(**changes: Any) -> Recipe:
    """Every batch of one shape; batch norm, dropout and augmentation on."""
    return small(128, **{"epochs": 3, "model": partial(models.mlp, (64, 16, 10), 0.2), **changes})


class Setting:
    """A replica in this process, and its first steps."""

    def __init__(
        self, folder: Path, recipe: Recipe, group: Group | None = None, **options: Any
    ) -> None:
        self.job = Job(recipe=recipe, out=folder / "run", **options)
        group = group or Group(World())
        self.replica = Replica(self.job, group, Progress())
        self.meter = Meter(self.job.plan, group)
        self.tickets = self.replica.steps(0)
        eager = TrainingStep(self.replica, self.meter)
        self.speed = PathSearch(self.job, group, self.replica, self.meter, Progress(), eager)
        self.attempts = self.speed.attempts

    def drop(self) -> None:
        """Let go of DDP before its group ends."""
        del self.replica, self.tickets, self.speed, self.attempts


@pytest.fixture
def kept() -> Iterator[None]:
    """Exact mode changes settings of the whole process."""
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("speed", ["eager", "auto"])
def test_on_the_cpu_a_short_run_is_eager(tmp_path: Path, speed: str):
    run = train(even(), tmp_path / "run", speed=speed)
    assert run["speed"]["name"] == "eager"
    assert run["speed"]["asked"] == speed


def test_a_graph_is_not_for_the_cpu_and_says_so(tmp_path: Path):
    run = train(even(), tmp_path / "run", speed="graph")
    assert run["speed"]["name"] == "eager"
    assert "on the CPU" in run["speed"]["why"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speed": "warp"}, "known are auto, eager, compile, graph"),
        ({"speed": "compile", "exact": True}, "Use --speed graph, eager or auto"),
        ({"speed": "graph", "timeline": True}, "Use --speed eager"),
    ],
    ids=str,
)
def test_options_that_contradict_each_other_are_refused(
    tmp_path: Path, options: dict, message: str
):
    with pytest.raises(PlanError, match=message):
        Job(recipe=even(), out=tmp_path, **options)


def test_a_run_without_a_full_batch_says_why_it_was_not_compiled(tmp_path: Path):
    run = train(small(20), tmp_path / "run", speed="compile")
    assert run["speed"]["name"] == "eager"
    assert "--global-batch is larger" in run["speed"]["why"]


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_compiled_steps_are_eager_ones_up_to_rounding(tmp_path: Path, replicas: int):
    recipe = in_double(
        even(model=partial(models.wideresnet, depth=10, width=1, channels=1, dropout=0.2)), 128
    )
    runs = [
        train(recipe, tmp_path / speed, replicas, speed=speed, max_steps=6)
        for speed in ("eager", "compile")
    ]
    assert runs[1]["speed"]["name"] == "compile", runs[1]["speed"]["why"]
    # Double precision: six steps from the same weights, masks and crops differ by rounding.
    first, second = (run["metrics"]["test_loss"] for run in runs)
    assert second == pytest.approx(first, rel=1e-9)


@needs_compiler
def test_without_a_compiler_a_run_trains_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import torch._inductor.config

    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", ("no-such-compiler",))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    runs = [train(even(), tmp_path / speed, speed=speed) for speed in ("eager", "compile")]
    assert runs[1]["speed"]["name"] == "eager"
    assert "not compiled, because" in runs[1]["speed"]["why"]
    assert runs[0]["weights_sha256"] == runs[1]["weights_sha256"]


def test_a_rollback_takes_a_step_back(tmp_path: Path):
    recipe = even(model=partial(models.wideresnet, depth=10, width=1, channels=1, dropout=0.2))
    setting = Setting(tmp_path, recipe)
    step = TrainingStep(setting.replica, setting.meter)
    step(*next(setting.tickets))
    ticket = next(setting.tickets)
    before = setting.replica.snapshot().tensors
    before = {name: tensor.clone() for name, tensor in before.items()}
    state = Rollback(setting.replica, setting.meter)
    step(*ticket)
    after = {name: t.clone() for name, t in setting.replica.snapshot().tensors.items()}
    assert any(not torch.equal(after[n], t) for n, t in before.items())
    state.restore()
    assert all(torch.equal(setting.replica.snapshot().tensors[n], t) for n, t in before.items())
    step(*ticket)
    assert all(torch.equal(setting.replica.snapshot().tensors[n], t) for n, t in after.items())


class Counting(torch.optim.Optimizer):
    """Counts its steps in Python, for each weight and in all, and replaces its momentum."""

    def __init__(self, params, lr: float) -> None:
        super().__init__(params, {"lr": lr, "steps": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["steps"] += 1
            for p in group["params"]:
                state = self.state[p]
                state["own"] = state.get("own", 0) + 1
                state["momentum"] = 0.9 * state.get("momentum", torch.zeros_like(p)) + p.grad
                p.sub_(state["momentum"], alpha=group["lr"] / group["steps"] / state["own"])


@pytest.mark.parametrize("before", [0, 2])
def test_a_rollback_takes_back_what_an_optimizer_counts_and_makes_anew(tmp_path: Path, before: int):
    setting = Setting(tmp_path, even(optimizer=Counting))
    eager = setting.speed.eager
    for _ in range(before):
        eager(*next(setting.tickets))
    ticket = next(setting.tickets)
    start = setting.replica.snapshot()
    start = Checkpoint({n: t.clone() for n, t in start.tensors.items()}, start.facts)
    state = Rollback(setting.replica, setting.meter)
    for _ in range(2):
        eager(*ticket)
        state.restore()
        now = setting.replica.snapshot()
        assert now.facts == start.facts
        assert now.tensors.keys() == start.tensors.keys()
        assert all(torch.equal(now.tensors[n], t) for n, t in start.tensors.items())


def test_a_rollback_takes_back_what_powersgd_remembers(tmp_path: Path):
    recipe = even(model=partial(models.mlp, (64, 64, 10)), warmup=0.0)

    def work(group: Group) -> list[bool]:
        setting = Setting(tmp_path, recipe, group, replicas=2, wire="powersgd")
        replica, powersgd = setting.replica, setting.replica.exchange.memory
        assert powersgd is not None
        for _ in range(2):
            setting.speed.eager(*next(setting.tickets))
        ticket = next(setting.tickets)
        state, same = Rollback(replica, setting.meter), []
        for _ in range(2):
            before = {n: t.clone() for n, t in powersgd.state(replica.model.module).items()}
            setting.speed.eager(*ticket)
            state.restore()
            after = powersgd.state(replica.model.module)
            same += [torch.equal(after[n], t) for n, t in before.items()]
            same += [set(powersgd.steps.values()) == {2}]
        setting.drop()
        return same

    answers = on_replicas(2, work)
    assert len(answers[0]) > 2
    assert all(all(answer) for answer in answers)


@pytest.mark.parametrize(("precision", "error"), [("fp32", 0.01), ("bf16", -2.0)])
def test_a_path_that_rounds_otherwise_passes_and_one_that_errs_does_not(
    tmp_path: Path, precision: str, error: float
):
    recipe = even(
        model=partial(models.wideresnet, depth=10, width=1, channels=1),
        precision=precision,
        optimizer=partial(torch.optim.SGD, momentum=0.9),
    )
    setting = Setting(tmp_path, recipe)
    replica, eager = setting.replica, setting.speed.eager
    for _ in range(2):
        eager(*next(setting.tickets))
    ticket = next(setting.tickets)

    def reordered(step, arrivals) -> Taken:
        """The same sums in another order: other rounding."""
        torch.backends.mkldnn.set_flags(False)
        try:
            return eager(step, arrivals)
        finally:
            torch.backends.mkldnn.set_flags(True)

    weights = [p.data for p in replica.model.module.parameters()]

    def rounded(step, arrivals) -> Taken:
        """Every weight one rounding further."""
        taken = eager(step, arrivals)
        for p in weights:
            p.copy_(torch.nextafter(p, torch.full_like(p, torch.inf)))
        return taken

    def erring(step, arrivals) -> Taken:
        """A step of another length, or backwards."""
        before = [p.clone() for p in weights]
        taken = eager(step, arrivals)
        for p, start in zip(weights, before, strict=True):
            p.add_(p - start, alpha=error)
        return taken

    assert setting.attempts.differs(eager, ticket) is None
    assert setting.attempts.differs(reordered, ticket) is None
    assert setting.attempts.differs(rounded, ticket) is None
    reason = setting.attempts.differs(erring, ticket)
    assert reason is not None
    assert "rounding explains" in reason


@pytest.mark.parametrize(("later", "chosen"), [(0.5, "compile"), (1.5, "eager")])
def test_a_compiled_step_is_timed_again_beside_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: float, chosen: str
):
    setting = Setting(tmp_path, even(epochs=40))
    speed, eager = setting.speed, setting.speed.eager
    compiled = TrainingStep(setting.replica, setting.meter)
    timed: list[str] = []

    def time(path, ticket, steps, name=None):
        """Take the steps; a compiled one is slow at first."""
        for _ in range(steps):
            ticket = yield path(*ticket)
        timed.append("eager" if path is eager else "compile")
        first = timed.count("compile") <= 2
        return ticket, 1.0 if path is eager else 2.0 if first else later

    monkeypatch.setitem(COMPILE_PAYS, "cpu", 0.0)
    monkeypatch.setattr(speed, "_time", time)
    monkeypatch.setattr(
        setting.attempts, "compile", lambda ticket, check: (compiled, compiled(*ticket), None)
    )
    for ticket in setting.tickets:
        speed(*ticket)
        if speed.settled:
            break
    assert speed.pick.name == chosen
    assert speed.pick.milliseconds == {"eager": 1e3, "compile": 1e3 * later}
    assert timed[-6:] == ["eager", "compile"] * 3


def test_in_exact_mode_only_the_same_bits_pass(tmp_path: Path, kept: None):
    setting = Setting(tmp_path, even(), exact=True)
    eager = setting.speed.eager
    for _ in range(2):
        eager(*next(setting.tickets))
    ticket = next(setting.tickets)

    def off(step, arrivals) -> Taken:
        taken = eager(step, arrivals)
        with torch.no_grad():
            next(iter(setting.replica.model.module.parameters())).flatten()[0].mul_(1 + 2.0**-23)
        return taken

    assert setting.attempts.differs(eager, ticket) is None
    assert setting.attempts.differs(off, ticket) == "its bits are not those of eager steps"


class Refused(NotImplementedError):
    """What a recording raises here."""


@pytest.mark.parametrize("fits", [[True, True], [True, False]], ids=["fit", "one does not fit"])
def test_replicas_take_steps_in_blocks_only_if_all_of_them_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fits: list[bool]
):
    """A recording needs a GPU; that the replicas agree on its outcome does not."""

    def work(group: Group) -> tuple[bool, list[int]]:
        class Recorded(Blocks):
            def __init__(self, *given: Any) -> None:
                if group.world.rank == 1:
                    raise Refused

            @staticmethod
            def fits(*given: Any) -> bool:
                return fits[group.world.rank]

        monkeypatch.setattr("lockstep.engine.step.path_attempts.Blocks", Recorded)
        setting = Setting(tmp_path, even(), group, replicas=2)
        single = object.__new__(Captured)
        path = setting.attempts.in_blocks(single, next(setting.tickets), 0.0)
        # If they had not asked each other equally often, this would meet another question.
        answer = path is single, group.objects(group.world.rank)
        setting.drop()
        return answer

    assert on_replicas(2, work) == [(True, [0, 1])] * 2


def test_an_optimizer_that_cannot_be_recorded_goes_on_as_if_nobody_had_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A recording calls the optimizer without computing anything."""
    setting = Setting(tmp_path, even(optimizer=Counting))
    setting.speed.eager(*next(setting.tickets))
    optimizer = setting.replica.update.optimizer

    def recorded(*given: Any) -> Captured:
        for p in setting.replica.update.parameters:
            p.grad = torch.zeros_like(p)
        optimizer.step()
        return object.__new__(Captured)

    monkeypatch.setattr("lockstep.engine.step.path_attempts.Captured", recorded)
    monkeypatch.setattr(setting.attempts, "_waits_for_host", lambda *given: None)
    kept = [dict(state) for state in optimizer.state.values()]
    graph, reason = setting.attempts.record(setting.speed.eager, next(setting.tickets))
    assert graph is None
    assert reason is not None
    assert "Python numbers" in reason
    assert optimizer.param_groups[0]["steps"] == 1
    for before, after in zip(kept, optimizer.state.values(), strict=True):
        assert after["own"] == 1
        assert after["momentum"] is before["momentum"]


@pytest.mark.parametrize("channels_last", [False, True])
def test_images_of_one_channel_stay_in_one_layout_from_layer_to_layer(
    tmp_path: Path, channels_last: bool
):
    recipe = small(128, channels_last=channels_last, augment=())
    here = Setting(tmp_path, recipe)
    layouts = set()

    def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if output.dim() == 4 and output.shape[-1] > 1:
            layouts.add(output.is_contiguous(memory_format=torch.channels_last))

    for module in here.replica.model.module.modules():
        module.register_forward_hook(note)
    here.speed(*next(here.tickets))
    assert layouts == {channels_last}
