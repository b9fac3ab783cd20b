"""Every example: equal bits on 1, 2 and 4 replicas, through a kill and a resume elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.errors import ReplicaDied
from programs import killed_after, run

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "loop").glob("*.py"))
QUICK = {"gan", "language_model", "stream"}
NEEDS = {"transformer": "transformers", "hub_data": "datasets", "tar_files": "webdataset"}


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.stem)
def example(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    if request.param.stem in NEEDS:
        pytest.importorskip(NEEDS[request.param.stem])
    monkeypatch.chdir(tmp_path)
    return request.param


def test_an_example_has_the_same_bits_on_any_number_of_replicas(
    example: Path, numbers: tuple[int, ...], tmp_path: Path
):
    runs = [run(example, tmp_path / str(n), n) for n in numbers]
    assert len({run["weights_sha256"] for run in runs}) == 1
    assert len({str(run["metrics"]) for run in runs}) == 1
    receipts = {(tmp_path / str(n) / "receipts.bin").read_bytes() for n in numbers}
    assert len(receipts) == 1
    assert len(receipts.pop()) > 0


# Of ten examples, `make test` kills three: `make test-all` kills the others.
@pytest.mark.parametrize(
    "example",
    [p if p.stem in QUICK else pytest.param(p, marks=pytest.mark.slow) for p in EXAMPLES],
    ids=[path.stem for path in EXAMPLES],
    indirect=True,
)
def test_an_example_survives_a_kill_and_continues_on_another_number_of_replicas(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    whole = run(example, tmp_path / "whole")
    # Death in the middle of the second epoch, with a checkpoint two steps before.
    step = whole["steps"] // 2 + 2
    every = max(1, step - 2)
    revive = killed_after(monkeypatch, step, rank=1)
    out = tmp_path / "killed"
    with pytest.raises(ReplicaDied):
        run(example, out, 2, checkpoint_every=every)
    revive()
    found = run(example, out, 4, resume=True, checkpoint_every=every)
    assert found["weights_sha256"] == whole["weights_sha256"]
    assert (out / "receipts.bin").read_bytes() == (tmp_path / "whole" / "receipts.bin").read_bytes()
