"""Programs with a Loop on a GPU: the same bits on 1, 2 and 4 replicas that share it."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file

from lockstep.cluster.program import Program, launch_program
from lockstep.console import Console
from lockstep.errors import ReplicaDied
from lockstep.world import gpu_count
from programs import PLAIN, killed_after, written

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(gpu_count() == 0, reason="needs a CUDA device"),
]
EXAMPLES = Path(__file__).parents[2] / "examples" / "loop"


def run(path: Path, out: Path, replicas: int, *, resume: bool = False, **flags: object) -> str:
    program = Program(path=path, out=out, share_gpu=True, resume=resume, flags=dict(flags))
    found = launch_program(program, replicas=replicas, device="cuda", console=Console(quiet=True))
    return found["weights_sha256"]


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
