"""Names and values, followed through the modules of a project."""

from __future__ import annotations

from pathlib import Path

from lockstep.source.project import Project
from lockstep.source.reading import read_script


def test_modules_that_import_a_name_from_each_other_come_to_an_end(tmp_path: Path):
    (tmp_path / "one.py").write_text("from two import thing\nthing()\n")
    (tmp_path / "two.py").write_text("from one import thing\n")
    script = read_script(tmp_path / "one.py")
    project = Project([script])
    call = script.calls[0]
    assert project.name(script, call.func) is not None
    assert project.definition(script, call.func) is None
    assert len(project.origins(script, call)) == 1
