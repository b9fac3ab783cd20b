"""The tests that the guide shows pass as they stand, beside a script of the name it gives."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_tests_of_the_guide_pass(tmp_path: Path):
    text = (ROOT / "docs" / "guides" / "testing.md").read_text()
    snippet = re.search(r"<!-- run: testing -->\n```python\n(.*?)```", text, re.DOTALL)
    assert snippet
    (tmp_path / "test_mine.py").write_text(snippet[1])
    shutil.copyfile(ROOT / "tests" / "cases" / "testing" / "ddp.py", tmp_path / "train.py")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "test_mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
