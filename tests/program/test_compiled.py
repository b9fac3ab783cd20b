"""Programs whose loss torch.compile compiles: the gradients of eager steps, or eager steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file

from lockstep.errors import PlanError
from programs import HEAD, PLAIN, Heard, run, written

# Not AdamW, which divides by the size of a gradient, also of one that is zero but for rounding.
FAST = PLAIN.replace("exact=True", "exact=False").replace(
    "AdamW(model.parameters(), lr=1e-2)", "SGD(model.parameters(), lr=0.05)"
)


def largest_difference(first: Path, second: Path) -> float:
    pairs = [load_file(folder / "weights.safetensors") for folder in (first, second)]
    return max(float((pairs[0][n].double() - pairs[1][n].double()).abs().max()) for n in pairs[0])


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_compiled_steps_are_those_of_eager_ones_up_to_rounding(replicas: int, tmp_path: Path):
    # Batch norm, dropout, noise from torch's generator, and a smaller last batch.
    noisy = HEAD.replace("self.a(x)", "self.a(x + 0.1 * torch.randn_like(x))")
    path = written(tmp_path, FAST, noisy)
    eager = run(path, tmp_path / "eager", replicas)
    compiled = run(path, tmp_path / "compiled", replicas, speed="compile")
    assert eager["speed"] == {"name": "eager", "why": ""}
    assert compiled["speed"] == {"name": "compile", "why": ""}
    # Ten steps in float32.
    assert largest_difference(tmp_path / "eager", tmp_path / "compiled") < 1e-5


@pytest.mark.slow
def test_a_loss_that_compiles_to_something_else_stays_eager(tmp_path: Path):
    body = FAST.replace(
        "return F.cross_entropy(model(x), y",
        "y = 2 - y if torch.compiler.is_compiling() else y\n"
        "        return F.cross_entropy(model(x), y",
    )
    path, heard = written(tmp_path, body), Heard(tmp_path / "heard", says=True)
    run(path, tmp_path / "eager")
    done = run(path, tmp_path / "compiled", speed="compile", console=heard)
    assert done["speed"]["name"] == "eager"
    assert "not compiled, because its gradient would differ by" in heard.text
    assert largest_difference(tmp_path / "eager", tmp_path / "compiled") == 0.0


@pytest.mark.slow
def test_a_loss_that_cannot_be_compiled_stays_eager(tmp_path: Path):
    body = f"""
import os
os.environ["TORCHINDUCTOR_CACHE_DIR"] = {str(tmp_path / "cache")!r}
import torch._inductor.config
torch._inductor.config.cpp.cxx = (None, {str(tmp_path / "no-such-compiler")!r})
{FAST}"""
    path, heard = written(tmp_path, body), Heard(tmp_path / "heard", says=True)
    run(path, tmp_path / "eager")
    done = run(path, tmp_path / "compiled", speed="compile", console=heard)
    assert done["speed"]["name"] == "eager"
    assert "Speed: eager: not compiled, because " in heard.text
    assert largest_difference(tmp_path / "eager", tmp_path / "compiled") == 0.0


def test_a_loss_that_is_made_anew_in_every_step_is_not_compiled(tmp_path: Path):
    body = FAST.replace("batch, loss, optimizer", "batch, lambda b: loss(b), optimizer").replace(
        "epochs(2)", "epochs(5)"
    )
    path, heard = written(tmp_path, body), Heard(tmp_path / "heard", says=True)
    done = run(path, tmp_path / "out", speed="compile", console=heard)
    assert done["speed"]["name"] == "eager"
    assert "define the loss once, before the loop" in heard.text


def test_exact_mode_is_not_compiled(tmp_path: Path):
    with pytest.raises(PlanError, match="compiler may order sums"):
        run(written(tmp_path, PLAIN), tmp_path / "out", speed="compile")
