"""What cannot work is refused with what to type instead, and nothing is loaded before its use."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lockstep.errors import UsageError
from lockstep.testing import same_on


@pytest.mark.parametrize(
    ("numbers", "advice"),
    [
        ((), r"same_on\(\): give numbers of replicas from 1 to 64, as same_on\(1, 2\)"),
        ((2, 4), r"same_on\(2, 4\) compares with the run on 1 replica. Write same_on\(1, 2, 4\)"),
        ((1,), r"Write same_on\(1, 2\)"),
        ((1, 0), "from 1 to 64"),
        (("train.py",), r"and then what to run: same_on\(1, 2\)\(train\)"),
    ],
)
def test_numbers_that_cannot_work_are_refused(numbers: tuple[int, ...], advice: str):
    with pytest.raises(UsageError, match=advice):
        same_on(*numbers)


def test_options_that_cannot_work_are_refused():
    with pytest.raises(UsageError, match="give 1 or more, or None"):
        same_on(1, 2, steps=0)
    with pytest.raises(UsageError, match="above 0"):
        same_on(1, 2, timeout=0.0)


def test_a_script_must_exist(tmp_path: Path):
    with pytest.raises(UsageError, match=r"missing\.py does not exist in"):
        same_on(1, 2)("missing.py")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError, match=r"notes\.txt is no \.py file"):
        same_on(1, 2)(tmp_path / "notes.txt")


def test_a_script_that_starts_its_ranks_needs_their_number(tmp_path: Path):
    script = tmp_path / "spawns.py"
    script.write_text("import torch.multiprocessing as mp\nmp.spawn(print, nprocs=2)\n")
    with pytest.raises(UsageError, match=r'"--replicas", "\{replicas\}"'):
        same_on(1, 2)(script)


def test_a_script_takes_no_keywords():
    with pytest.raises(UsageError, match="as on a command line"):
        same_on(1, 2)("train.py", epochs=1)


def test_the_package_names_the_plugin():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"lockstep": "lockstep.testing.plugin"}


def test_the_plugin_loads_neither_torch_nor_the_rest_of_lockstep():
    code = (
        "import sys, lockstep.testing.plugin\n"
        "ours = {m for m in sys.modules if m.startswith('lockstep')}\n"
        "assert not {'torch', 'numpy', 'libcst'} & set(sys.modules)\n"
        "assert ours == {'lockstep', 'lockstep.errors', 'lockstep.testing', "
        "'lockstep.testing.same', 'lockstep.testing.plugin'}, ours\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
