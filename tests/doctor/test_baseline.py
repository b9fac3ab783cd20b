"""Findings that are known are not reported again, and others are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockstep.doctor import RULES, check
from lockstep.doctor.baseline import marks_of, only_new, write
from lockstep.doctor.output import sarif
from lockstep.errors import UsageError

BAD = """
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
torch.save(model.module.state_dict(), "a.pt")
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("train.py")
    path.write_text(BAD)
    return path


def test_known_findings_are_dropped_also_when_lines_above_change(script: Path):
    assert write(Path("known.json"), check([script])) == 1
    script.write_text("# a comment\n\n" + BAD.replace("torch.save", "print(1)\ntorch.save"))
    checked = check([script])
    assert only_new(Path("known.json"), checked) == 1
    assert checked.findings == []


def test_a_second_finding_like_a_known_one_is_new(script: Path):
    write(Path("known.json"), check([script]))
    line = BAD.splitlines()[-1]
    script.write_text(f"{BAD}if dist.get_world_size() > 4:\n    pass\n{line}\n")
    checked = check([script])
    assert only_new(Path("known.json"), checked) == 1
    assert [finding.rule.name for finding in checked.findings] == ["every_rank_saves"]


@pytest.mark.parametrize("text", ["", "{}", '{"kind": "else", "findings": {}}', "[1]"])
def test_another_file_is_no_baseline(script: Path, text: str):
    Path("known.json").write_text(text)
    with pytest.raises(UsageError, match="is no baseline"):
        only_new(Path("known.json"), check([script]))
    with pytest.raises(UsageError, match="Write one first"):
        only_new(Path("missing.json"), check([script]))


def test_sarif_results_carry_the_same_marks(script: Path):
    checked = check([script])
    (result,) = sarif(checked, "1")["runs"][0]["results"]
    assert result["partialFingerprints"] == {"lockstep/v1": marks_of(checked)[checked.findings[0]]}
    json.dumps(result)


def test_several_processes_find_what_one_finds():
    cases = Path(__file__).parents[1] / "cases" / "doctor" / "every_rank_writes"
    more = cases.parent / "collective_in_branch"
    one, two = (check([cases, more], RULES, processes=n) for n in (1, 2))
    assert [(f.path, f.line, f.rule.code) for f in one.findings] == [
        (f.path, f.line, f.rule.code) for f in two.findings
    ]
    assert (one.distributed, one.files, one.errors) == (two.distributed, two.files, two.errors)
    assert one.findings
