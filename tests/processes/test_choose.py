"""One rule decides whether a script may be forked; fresh and forked starts find the same."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from converting import proven
from lockstep.doctor import RULES
from lockstep.doctor.facts import facts
from lockstep.doctor.run import Examination, examine
from lockstep.labs.lab1_descent.tasks import BATCHES
from lockstep.probes import run_script
from lockstep.processes import choose, sandbox
from lockstep.processes.choose import reason_for_fresh
from lockstep.world import elsewhere

CASES = Path(__file__).parent.parent / "cases"


def reason(folder: Path, text: str) -> str | None:
    script = folder / "script.py"
    script.write_text(text)
    return reason_for_fresh(script, elsewhere())


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nprint(torch.ones(2))",
        "import os, torch\nos.environ['OMP_NUM_THREADS'] = '4'",
        "import os\nos.environ['MASTER_PORT'] = '1234'\nimport torch",
        "import os\nos.environ.setdefault('WANDB_MODE', 'offline')\nimport torch",
        "import os\nenv = os.environ.copy()\nhome = os.environ['HOME']\nimport torch",
        "from ........too.deep import x\nimport torch",
        "import sys, torch\nprint(sys.argv, torch.stack([]), path.modules(), x.path)",
        "import importlib, torch\nimportlib.import_module('json')",
        "import torch\nnames = sorted(set('abc'))\nprint(len({1, 2}), 3 in {3, 4})",
        "import torch\nfrom torch.utils.data import DataLoader\nDataLoader([1], num_workers=2)",
    ],
)
def test_scripts_that_cannot_notice_are_forked(tmp_path: Path, text: str):
    assert reason(tmp_path, text) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import torch.multiprocessing as mp\nmp.spawn(print, nprocs=2)", "line 2 chooses how"),
        ("from torch.multiprocessing import spawn", "line 1 chooses how"),
        ("import multiprocessing as mp\nmp.set_start_method('fork')", "line 2 chooses how"),
        ("import torch\nDataLoader(x, multiprocessing_context='spawn')", "line 2 chooses how"),
        ("import lightning as L", "framework that starts processes"),
        ("import os\nos.environ['OMP_NUM_THREADS'] = '4'\nimport torch", "line 2 sets the env"),
        ("import os\nos.environ[name] = '4'\nimport torch", "line 2 sets the environment"),
        (
            "from os import environ\nenviron.update(OMP_PLACES='1')\nimport torch",
            "line 2 sets",
        ),
        (
            "import os\ndef main():\n    os.putenv('OMP_PLACES', '1')\n    import torch",
            "line 3",
        ),
        ("import torch\nfor word in set(open('x').read().split()): pass", "line 2 uses a set"),
        ("import torch\ntorch.manual_seed(hash('name'))", "line 2 uses a set or hash"),
        ("import os\nos.environ |= {'OMP_PLACES': '1'}\nimport torch", "line 2 sets"),
        ("from os import environ as e\ne['OMP_PLACES'] = '1'\nimport torch", "line 1 sets"),
        ("import os\ne = os.environ\ne['OMP_PLACES'] = '1'\nimport torch", "line 2 sets"),
        ("import os\nos.environ.__setitem__(name, '1')\nimport torch", "line 2 sets"),
        ("import torch\nfor key in a.keys() - b.keys(): pass", "line 2 uses a set"),
        ("import sys\nfast = 'torch' not in sys.modules\nimport torch", "line 2 looks at how"),
        ("import sys\nsys.meta_path.insert(0, finder)\nimport torch", "line 2 looks at how"),
        ("import sys\nsys.path.insert(0, 'vendor')\nimport torch", "line 2 looks at how"),
        ("import inspect, torch\nprint(len(inspect.stack()))", "line 2 looks at how"),
        ("import torch\nopen('/proc/self/cmdline')", "line 2 looks at how"),
        ("import runpy\nrunpy.run_path(name)", "line 1 runs code"),
        ("import importlib\nimportlib.import_module(name)", "line 2 runs code"),
        ("x = = 1", "cannot be read"),
    ],
)
def test_scripts_that_could_notice_start_fresh(tmp_path: Path, text: str, words: str):
    assert words in (reason(tmp_path, text) or "")


def test_modules_beside_a_script_are_looked_at_too(tmp_path: Path):
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "__init__.py").write_text("from .deep import run")
    (tmp_path / "helpers" / "deep.py").write_text("import lightning\ndef run(): pass")
    (tmp_path / "unused.py").write_text("import lightning")
    assert reason(tmp_path, "import torch") is None
    by_name = "import torch, importlib\nimportlib.import_module('helpers.deep')"
    assert "framework" in (reason(tmp_path, by_name) or "")
    assert "framework" in (reason(tmp_path, "import torch\nfrom helpers import run") or "")


def test_a_module_with_the_name_of_a_loaded_one_starts_fresh(tmp_path: Path):
    (tmp_path / "dataset.py").write_text("")
    assert reason(tmp_path, "import torch") is None
    (tmp_path / "pickletools.py").write_text("")
    assert "pickletools.py beside the script" in (reason(tmp_path, "import torch") or "")


BAD = [
    "gradient_differs/bad_sum.py",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("missing_sampler/bad_functions.py", "quiet/good_join.py")
    ),
]


@pytest.mark.parametrize("name", BAD)
def test_the_doctor_finds_the_same_fresh_and_forked(monkeypatch, name: str):
    found = []
    for fresh in (False, True):
        if fresh:
            monkeypatch.setattr(run_script, "reason_for_fresh", lambda *given: "this is a test")
        script = CASES / "doctor_run" / name
        with TemporaryDirectory() as notes, TemporaryDirectory() as place, chdir(place):
            examined = examine(Examination(script=script, gpus=2), Path(notes), RULES)
            shown = facts(examined)
            findings = sorted((f.line, f.rule.code, f.message) for f in examined.findings)
            found.append((findings, shown["ended"], shown["oracle"]["verdict"]))
    assert found[0] == found[1]


def test_a_task_of_a_lab_is_judged_alike_fresh_and_forked(monkeypatch):
    answers = [BATCHES.answer, BATCHES.starter, "raise SystemExit(3)", "print(1 / 0)"]
    found = []
    for fresh in (False, True):
        if fresh:
            monkeypatch.setattr(sandbox, "reason_for_fresh_module", lambda env: "this is a test")
        found.append([BATCHES.judge(text) for text in answers])
    assert found[0] == found[1]
    assert found[0][0] == []
    assert all(found[0][1:])


def test_a_gpu_asks_for_a_fresh_module(monkeypatch):
    assert choose.reason_for_fresh_module(elsewhere()) is None
    monkeypatch.setattr(choose, "gpus_here", lambda: 1)
    assert "CUDA" in (choose.reason_for_fresh_module(elsewhere()) or "")


@pytest.mark.slow
def test_a_conversion_is_proved_alike_fresh_and_forked(monkeypatch, tmp_path: Path):
    script = CASES / "convert" / "scripts" / "word_lm.py"
    monkeypatch.chdir(tmp_path)
    found = []
    for fresh in (False, True):
        if fresh:
            monkeypatch.setattr(run_script, "reason_for_fresh", lambda *given: "this is a test")
        verdict = proven(script, (2,), steps=3).verdict
        found.append((verdict.failure, [(c.status, c.text) for c in verdict.comparisons]))
    assert found[0] == found[1]
    assert not found[0][0]
