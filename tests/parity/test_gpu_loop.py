"""Programs with a Loop on a GPU: the same bits on 1, 2 and 4 replicas that share it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from lockstep.cluster.program import Program, launch_program
from lockstep.console import Console
from lockstep.engine.program.overlap import Overlap
from lockstep.engine.program.tree import Gradients
from lockstep.errors import ReplicaDied, RunError
from lockstep.world import gpu_count
from programs import PLAIN, killed_after, written
from replicas import OnNccl

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(gpu_count() == 0, reason="needs a CUDA device"),
]
EXAMPLES = Path(__file__).parents[2] / "examples" / "loop"


def summary(
    path: Path, out: Path, replicas: int, *, resume: bool = False, **flags: object
) -> dict[str, Any]:
    program = Program(path=path, out=out, share_gpu=True, resume=resume, flags=dict(flags))
    return launch_program(program, replicas=replicas, device="cuda", console=Console(quiet=True))


def run(path: Path, out: Path, replicas: int, *, resume: bool = False, **flags: object) -> str:
    return str(summary(path, out, replicas, resume=resume, **flags)["weights_sha256"])


@pytest.mark.parametrize(
    "name", ["gan", "segmentation", "finetune", "contrastive", "accumulation", "language_model"]
)
def test_an_example_has_the_same_bits_on_a_shared_gpu(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    path = EXAMPLES / f"{name}.py"
    assert len({run(path, tmp_path / str(n), n) for n in (1, 2, 4)}) == 1


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_precisions_keep_the_bits(precision: str, tmp_path: Path):
    path = written(tmp_path, PLAIN)
    assert len({run(path, tmp_path / str(n), n, precision=precision) for n in (1, 2)}) == 1


def test_a_killed_program_continues_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = written(tmp_path, PLAIN)
    whole = run(path, tmp_path / "whole", 1)
    revive = killed_after(monkeypatch, 7)
    with pytest.raises(ReplicaDied):
        run(path, tmp_path / "out", 2, checkpoint_every=3)
    revive()
    assert run(path, tmp_path / "out", 1, resume=True, checkpoint_every=3) == whole


def test_fast_mode_agrees_with_exact_mode_up_to_rounding(tmp_path: Path):
    path = written(tmp_path, PLAIN.replace("self.dropout", "self.dropout"))
    for name, exact in (("exact", True), ("fast", False)):
        run(path, tmp_path / name, 2, exact=exact)
    exact, fast = (load_file(tmp_path / n / "weights.safetensors") for n in ("exact", "fast"))
    for name, tensor in exact.items():
        # Ten steps of AdamW: a gradient near zero may move a weight by its rate, 1e-2, in another
        # direction.
        assert (tensor.double() - fast[name].double()).abs().max() < 0.05


LONGER = PLAIN.replace("epochs(2)", "epochs(4)")
RECORDED = {
    "batch norm and dropout": LONGER,
    "functional dropout": LONGER.replace("model(x)", "F.dropout(model(x), 0.3)"),
    "weights": LONGER.replace(
        'reduction="sum"), len(y)', 'reduction="none"), 1.0 + (y > 1).float()'
    ),
    "more to log": LONGER.replace("len(y)", "len(y), {'right': (model(x).argmax(1) == y).sum()}"),
    "clipping": LONGER.replace("lr=1e-2)", "lr=1e-2), clip=0.1"),
    "layers that thaw": LONGER.replace(
        "        for batch", "        model.a.requires_grad_(epoch > 1)\n        for batch"
    ),
    "two losses": LONGER.replace(
        "loop.step(batch, loss", "loop.step(batch, loss if loop.steps % 2 else other"
    ).replace(
        "    for epoch", "    other = lambda b: (model(b[0]).square().sum(), 1)\n    for epoch"
    ),
}


@pytest.mark.parametrize("case", RECORDED)
def test_a_recorded_loss_has_the_bits_of_an_eager_one(case: str, tmp_path: Path):
    path = written(tmp_path, RECORDED[case])
    eager = run(path, tmp_path / "eager", 1)
    for replicas in (1, 2):
        found = summary(path, tmp_path / f"graph{replicas}", replicas, speed="graph")
        assert found["speed"] == {"name": "graph", "why": ""}
        assert found["weights_sha256"] == eager


@pytest.mark.parametrize(
    "name", ["gan", "segmentation", "finetune", "contrastive", "accumulation", "language_model"]
)
def test_an_example_has_the_same_bits_if_it_is_recorded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    path = EXAMPLES / f"{name}.py"
    found = [run(path, tmp_path / speed, 1, speed=speed) for speed in ("eager", "graph")]
    assert found[0] == found[1]


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_recorded_loss_keeps_its_precision(precision: str, tmp_path: Path):
    path = written(tmp_path, LONGER)
    found = [run(path, tmp_path / s, 1, speed=s, precision=precision) for s in ("eager", "graph")]
    assert found[0] == found[1]


UNRECORDED = {
    "asks the device": LONGER.replace("len(y)", "float(torch.ones(len(y)).cuda().sum().item())"),
    "draws random numbers": LONGER.replace(
        "model(x)", "(model(x) if random.random() < 0.5 else model(x) * 2)"
    ),
}


@pytest.mark.parametrize("case", UNRECORDED)
def test_a_loss_that_cannot_be_recorded_is_computed_eagerly(case: str, tmp_path: Path):
    path = written(tmp_path, UNRECORDED[case])
    eager = run(path, tmp_path / "eager", 1)
    found = summary(path, tmp_path / "graph", 1, speed="graph")
    assert case in found["speed"]["why"]
    assert found["weights_sha256"] == eager


@pytest.mark.parametrize("exact", [True, False])
def test_a_number_that_python_changes_ends_a_recorded_run(exact: bool, tmp_path: Path):
    annealed = LONGER.replace('reduction="sum")', 'reduction="sum") * (1 + loop.steps)')
    path = written(tmp_path, annealed)
    with pytest.raises(RunError, match=r"gradients differ|was recorded \(speed='graph'\)"):
        run(path, tmp_path / "run", 1, exact=exact, speed="graph", check_every=2)


def test_fast_mode_can_be_recorded(tmp_path: Path):
    path = written(tmp_path, LONGER)
    for speed in ("eager", "graph"):
        found = summary(path, tmp_path / speed, 1, exact=False, speed=speed)
        assert found["speed"]["name"] == speed
    eager, graph = (load_file(tmp_path / n / "weights.safetensors") for n in ("eager", "graph"))
    for name, tensor in eager.items():
        # Twenty steps of AdamW with a rate of 1e-2: see above.
        assert (tensor.double() - graph[name].double()).abs().max() < 0.1


# Not AdamW, which divides by the size of a gradient, also of one that is zero but for rounding.
FAST = LONGER.replace("exact=True", "exact=False").replace(
    "AdamW(model.parameters(), lr=1e-2)", "SGD(model.parameters(), lr=0.05)"
)


@pytest.mark.parametrize(("precision", "bound"), [("fp32", 1e-5), ("bf16", 0.02)])
def test_a_compiled_loss_is_that_of_eager_steps_up_to_rounding(
    precision: str, bound: float, tmp_path: Path
):
    path = written(tmp_path, FAST)
    for speed in ("eager", "compile"):
        found = summary(path, tmp_path / speed, 1, speed=speed, precision=precision)
        assert found["speed"] == {"name": speed, "why": ""}
    eager, compiled = (
        load_file(tmp_path / n / "weights.safetensors") for n in ("eager", "compile")
    )
    for name, tensor in eager.items():
        assert (tensor.double() - compiled[name].double()).abs().max() < bound


def test_gradients_that_travel_during_backward_on_nccl_have_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, log, complete = written(tmp_path, FAST), tmp_path / "early", Overlap.complete

    def noted(self: Overlap, gradients: Gradients) -> None:
        with log.open("a") as file:
            file.write(f"{len(self.under_way)}\n")
        complete(self, gradients)

    monkeypatch.setattr(Overlap, "complete", noted)
    monkeypatch.setattr("lockstep.engine.program.overlap.LEAST", 0)
    monkeypatch.setattr("lockstep.engine.program.overlap.best_bucket", lambda *_: 100.0)
    monkeypatch.setattr(
        "lockstep.engine.program.start.Group", lambda *_, **__: OnNccl(tmp_path / "store")
    )
    overlapped = run(path, tmp_path / "overlapped", 1)
    monkeypatch.setattr("lockstep.engine.program.exchange.Carrier.overlaps", False)
    assert run(path, tmp_path / "after", 1) == overlapped
    assert max(map(int, log.read_text().split())) > 1
