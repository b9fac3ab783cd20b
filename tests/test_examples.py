"""The examples and the snippets of the documentation run as they stand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def torchrun(script: Path, replicas: int) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={replicas}", str(script)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_the_exact_loop_has_the_same_bits_on_1_2_and_4_replicas():
    script = ROOT / "examples" / "exact_loop.py"
    assert len({torchrun(script, replicas) for replicas in (1, 2, 4)}) == 1


@pytest.mark.slow
def test_the_plain_loop_learns_the_same_on_1_and_2_replicas():
    script = ROOT / "examples" / "plain_loop.py"
    scores = [float(torchrun(script, replicas).split()[-1]) for replicas in (1, 2)]
    assert scores[0] > 0.8
    # The same training up to rounding, over 46 steps of a small perceptron: one image of 360.
    assert scores[0] == pytest.approx(scores[1], abs=1 / 360 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_the_noise_scale_of_a_loop_is_shown_with_its_interval(replicas: int):
    lines = torchrun(ROOT / "examples" / "noise_scale.py", replicas).splitlines()
    assert len(lines) == 4
    for line in lines:
        assert re.fullmatch(r"step \d+: [\d,]+ samples \([\d,]+ - ([\d,]+|inf)\)", line)


def test_the_recipe_of_the_guide_trains(tmp_path: Path):
    text = (ROOT / "docs" / "guides" / "train.md").read_text()
    snippet = re.search(r"<!-- run: recipe -->\n```python\n(.*?)```", text, re.DOTALL)
    assert snippet
    (tmp_path / "recipe.py").write_text(snippet[1])
    command = [sys.executable, "-m", "lockstep", "train", "recipe.py", "--replicas", "2", "--json"]
    command += ["--out", "run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "finished"


def test_links_between_pages_lead_somewhere():
    folders = ("docs", "bench", "examples", "src")
    pages = [*ROOT.glob("*.md"), *(page for f in folders for page in (ROOT / f).rglob("*.md"))]
    assert len(pages) > 50
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page} links to {target}"


def test_every_flag_of_the_guides_exists():
    shown = "".join(
        subprocess.run(
            [sys.executable, "-m", "lockstep", command, "--help"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for command in ("train", "compare", "bench")
    )
    for page in ("train.md", "compare.md", "bench.md", "data.md"):
        text = (ROOT / "docs" / "guides" / page).read_text()
        text = "\n".join(line for line in text.splitlines() if "torchrun" not in line)
        for flag in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)):
            assert flag in shown, flag
