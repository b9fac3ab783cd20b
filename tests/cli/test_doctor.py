"""lockstep doctor as a user types it: what it prints, fixes, and says about bad input."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lockstep.cli import main
from lockstep.doctor import RULES

CASES = Path(__file__).parent.parent / "cases" / "doctor"
BAD = CASES / "missing_set_epoch" / "bad_argparse.py"
GOOD = CASES / "missing_set_epoch" / "good_argparse.py"
SAVES = CASES / "every_rank_saves" / "bad_argparse.py"


@pytest.fixture
def doctor(monkeypatch, capfd):
    """Run the command: exit code, standard output, standard error."""

    def run(*arguments: object, stdin: bytes = b"") -> SimpleNamespace:
        monkeypatch.setattr(sys, "argv", ["lockstep", "doctor", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as left:
            main()
        shown = capfd.readouterr()
        assert "Traceback" not in shown.out + shown.err
        return SimpleNamespace(code=left.value.code, out=shown.out, err=shown.err)

    return run


# --- what it prints ---


def test_a_correct_script_ends_in_zero(doctor):
    run = doctor(GOOD)
    assert (run.code, run.err) == (0, "")
    assert run.out == "1 file: nothing found.\n"


def test_a_script_that_trains_on_one_device_has_nothing_to_check(doctor, tmp_path):
    path = tmp_path / "plain.py"
    path.write_text("import torch\nmodel = torch.nn.Linear(1, 1)\n")
    run = doctor(path)
    assert run.code == 0
    assert "no data-parallel training found" in run.out


def test_a_finding_says_where_what_and_what_to_do(doctor):
    run = doctor(BAD)
    assert run.code == 1
    line = next(n for n, text in enumerate(BAD.read_text().splitlines(), 1) if "# LS01" in text)
    first, second, last = run.out.splitlines()
    assert first.startswith(f"{BAD}:{line}:5: error LS01 missing_set_epoch: ")
    assert "set_epoch(epoch)" in second
    assert "--fix" in second
    assert last == "1 file: 1 error(s), 0 possible."


def test_json_is_one_document(doctor):
    run = doctor("--json", BAD, SAVES)
    assert run.code == 1
    document = json.loads(run.out)
    assert document["files"] == document["distributed"] == 2
    assert {f["code"] for f in document["findings"]} == {"LS01", "LS25"}
    for finding in document["findings"]:
        assert set(finding) >= {"rule", "path", "line", "column", "severity", "message", "advice"}
        assert finding["severity"] == "error"
    assert doctor("--format", "json", BAD, SAVES).out == run.out


def test_sarif_has_the_shape_that_code_hosts_read(doctor, monkeypatch):
    monkeypatch.chdir(CASES)
    run = doctor("--format", "sarif", BAD, CASES / "missing")
    document = json.loads(run.out)
    assert (run.code, document["version"]) == (2, "2.1.0")
    assert document["$schema"].endswith("sarif-2.1.0.json")
    (only,) = document["runs"]
    driver = only["tool"]["driver"]
    assert driver["name"] == "lockstep doctor"
    assert [rule["id"] for rule in driver["rules"]] == [rule.code for rule in RULES]
    assert all(
        rule["shortDescription"]["text"] and rule["help"]["text"] for rule in driver["rules"]
    )
    (result,) = only["results"]
    assert (result["ruleId"], result["level"]) == ("LS01", "error")
    assert result["message"]["text"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "missing_set_epoch/bad_argparse.py"
    region = place["region"]
    assert 1 <= region["startLine"] <= region["endLine"]
    assert region["startColumn"] >= 1
    (invocation,) = only["invocations"]
    assert invocation["executionSuccessful"] is False
    assert "does not exist" in invocation["toolExecutionNotifications"][0]["message"]["text"]


def test_github_gets_one_command_for_each_finding(doctor, tmp_path):
    path = tmp_path / "a,b.py"
    path.write_bytes(BAD.read_bytes())
    run = doctor("--format", "github", path)
    assert run.code == 1
    (line,) = run.out.splitlines()
    assert line.startswith(f"::error file={tmp_path}/a%2Cb.py,line=")
    assert "title=LS01 missing_set_epoch::" in line


def test_rules_are_listed(doctor):
    run = doctor("--rules")
    assert run.code == 0
    assert [line.split()[:2] for line in run.out.splitlines()] == [[r.code, r.name] for r in RULES]
    assert len(json.loads(doctor("--rules", "--json").out)) == len(RULES)


@pytest.mark.parametrize(
    ("flags", "codes"),
    [
        (["--select", "LS01"], {"LS01"}),
        (["--select", "missing_set_epoch,every_rank_saves"], {"LS01", "LS25"}),
        (["--ignore", "LS01"], {"LS25"}),
        (["--ignore", "every_rank_saves , LS01"], set()),
        (["--select", "LS01", "--ignore", "LS01"], set()),
    ],
)
def test_rules_are_chosen_by_name_or_code(doctor, flags, codes):
    run = doctor("--json", *flags, BAD, SAVES)
    assert {f["code"] for f in json.loads(run.out)["findings"]} == codes
    assert run.code == (1 if codes else 0)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--select", "LS99", BAD], "--select LS99: no such rule. lockstep doctor --rules"),
        (["--ignore", "nothing", BAD], "--ignore nothing: no such rule"),
        (["--format", "xml", BAD], "known are text, json, sarif, github"),
        ([], "name a script, a notebook or a folder"),
        (["-", BAD], "give no other path with it"),
        (["--nonsense", BAD], "--nonsense"),
    ],
)
def test_flags_that_cannot_work_end_in_two_with_what_to_type(doctor, flags, said):
    run = doctor(*flags)
    assert run.code == 2
    assert said in run.err


@pytest.mark.parametrize(
    ("note", "code"),
    [
        ("# lockstep: ignore", 0),
        ("# lockstep: ignore[LS01]", 0),
        ("#lockstep:ignore[missing_set_epoch]", 0),
        ("# lockstep: ignore[LS25, LS01] on purpose", 0),
        ("# lockstep: ignore[LS25]", 1),
        ("# ignore[LS01]", 1),
    ],
)
def test_a_comment_says_that_it_is_meant(doctor, tmp_path, note, code):
    path = tmp_path / "script.py"
    path.write_text(BAD.read_text().replace("# LS01", note))
    assert doctor(path).code == code


def test_standard_input_is_a_script(doctor):
    run = doctor("-", stdin=BAD.read_bytes())
    assert run.code == 1
    assert run.out.startswith("standard input:")
    assert doctor("-", stdin=b"").code == 0
    assert "not Python" in doctor("-", stdin=b"def f(:\n").err
    mended = doctor("--fix", "-", stdin=BAD.read_bytes())
    assert mended.code == 2 or "--fix changes .py files only" in mended.err


def test_a_folder_is_looked_through(doctor, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "bad.py").write_bytes(BAD.read_bytes())
    (tmp_path / "a" / "other.py").write_text("print('nothing')\n")
    (tmp_path / "a" / "old.py").write_text("print 'not looked at: nothing of interest in it'\n")
    (tmp_path / "notes.txt").write_text("import torch :-)")
    for skipped in (".venv", "node_modules", "build"):
        (tmp_path / skipped).mkdir()
        (tmp_path / skipped / "bad.py").write_bytes(BAD.read_bytes())
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    (tmp_path / "env" / "bad.py").write_bytes(BAD.read_bytes())
    document = json.loads(doctor("--json", tmp_path).out)
    assert [f["path"] for f in document["findings"]] == [str(tmp_path / "a" / "bad.py")]
    assert document["files"] == 3


def test_a_module_without_torch_is_read_when_it_is_imported(doctor, tmp_path):
    text = BAD.read_text()
    assert "sampler = DistributedSampler(data, shuffle=True)" in text
    text = text.replace("DistributedSampler(data, shuffle=True)", "make(DistributedSampler, data)")
    (tmp_path / "main.py").write_text("from helper import make\n" + text)
    (tmp_path / "helper.py").write_text("def make(kind, data):\n    return kind(data)\n")
    assert doctor(tmp_path).code in (0, 1)


def test_a_folder_with_nothing_in_it_is_no_error(doctor, tmp_path):
    assert doctor(tmp_path).code == 0


def notebook(*cells: str) -> str:
    code = [{"cell_type": "code", "source": text, "metadata": {}, "outputs": []} for text in cells]
    heading = {"cell_type": "markdown", "source": ["# Training"], "metadata": {}}
    return json.dumps({"cells": [heading, *code], "metadata": {}, "nbformat": 4})


MAGIC = """%load_ext autoreload
!pip install torch
files = !ls
where = %pwd
if True:
    !nvidia-smi
help?
?help
!pip install torch \\
    torchvision
x = (7
     % 4)"""


def test_a_notebook_is_read_with_its_magic_and_shell_lines(doctor, tmp_path):
    path = tmp_path / "bad.ipynb"
    path.write_text(notebook(MAGIC, "%%bash\nls | wc", "%%time\n" + BAD.read_text()))
    run = doctor(path)
    assert (run.code, run.err) == (1, "")
    assert f"{path}:cell 4, line " in run.out
    assert ",line=" not in doctor("--format", "github", path).out
    place = json.loads(doctor("--format", "sarif", path).out)["runs"][0]["results"][0]
    assert "region" not in place["locations"][0]["physicalLocation"]
    before = path.read_bytes()
    mended = doctor("--fix", path)
    assert mended.code == 1
    assert "--fix changes .py files only" in mended.err
    assert path.read_bytes() == before


# --- what it fixes ---


def test_a_fix_changes_its_line_and_nothing_else(doctor, tmp_path):
    path = tmp_path / "script.py"
    source = "# -*- coding: utf-8 -*-\n# Über alles\n" + BAD.read_text() + "\n\n\n# The end.   \n"
    path.write_bytes(source.encode())
    run = doctor("--fix", path)
    assert run.code == 0
    assert "1 finding(s) fixed." in run.out
    before, after = source.splitlines(), path.read_text().splitlines()
    added = [line for line in after if line not in before]
    assert [line.strip() for line in added] == ["sampler.set_epoch(epoch)"]
    after.remove(added[0])
    assert after == before
    assert "0 finding(s) fixed." in doctor("--fix", path).out


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        ("", "utf-8"),
        ("# café\n", "utf-8-sig"),
        ("# -*- coding: latin-1 -*-\n# café\n", "latin-1"),
        ("# café\n\x0c\n", "utf-8"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_fix_keeps_line_ends_and_encoding(doctor, tmp_path, head, encoding, newline):
    path = tmp_path / "script.py"
    source = (head + BAD.read_text()).replace("\n", newline)
    path.write_bytes(source.encode(encoding))
    assert doctor("--fix", path).code == 0
    text = path.read_bytes().decode(encoding)
    lines = [line for line in text.split(newline) if "set_epoch" not in line]
    assert lines == source.split(newline)
    assert "\n" not in text.replace(newline, "")
    assert (path.read_bytes()[:3] == b"\xef\xbb\xbf") == (encoding == "utf-8-sig")


def test_without_the_flag_nothing_is_written(doctor, tmp_path):
    path = tmp_path / "script.py"
    path.write_bytes(BAD.read_bytes())
    doctor(path)
    assert path.read_bytes() == BAD.read_bytes()


def test_a_fix_that_a_person_should_review_needs_its_own_flag(doctor, tmp_path, monkeypatch):
    from dataclasses import replace

    from lockstep.doctor import check

    def unsafe(look):
        def looked(training):
            for found in look(training):
                yield replace(found, fix=found.fix and replace(found.fix, safe=False))

        return looked

    rules = tuple(replace(rule, look=rule.look and unsafe(rule.look)) for rule in RULES)
    monkeypatch.setattr("lockstep.doctor.RULES", rules)
    monkeypatch.setattr(sys.modules[check.__module__], "RULES", rules)
    path = tmp_path / "script.py"
    path.write_bytes(BAD.read_bytes())
    assert doctor("--fix", path).code == 1
    assert path.read_bytes() == BAD.read_bytes()
    assert "(--unsafe-fixes: " in doctor(path).out
    assert doctor("--unsafe-fixes", path).code == 0
    assert b"set_epoch(epoch)" in path.read_bytes()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_cannot_be_written_says_so(doctor, tmp_path):
    path = tmp_path / "script.py"
    path.write_bytes(BAD.read_bytes())
    path.chmod(0o444)
    run = doctor("--fix", path)
    assert run.code == 1
    assert "cannot be written" in run.err


# --- bad input ---


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"def f(:\n    pass\n", ["line 1", "not Python", "'def f(:'", "Fix it first"]),
        (b"import torch\nprint 'hello'\n", ["line 2", "It looks like Python 2", "convert it"]),
        (b"import torch\nx = 0777\n", ["line 2", "Python 2"]),
        (b"import torch\nname = 'caf\xe9'\n", ["not text in utf-8", "Save it as UTF-8"]),
        (b"# coding: klingon\nimport torch\n", ["known encoding", "Save it as UTF-8"]),
        (b"import torch\nx = 1\0\n", ["line 2", "null byte", "Leave it out"]),
        (bytes(range(256)) * 20, ["Save it as UTF-8"]),
        (b"import torch\nx = " + b"(" * 4000 + b")" * 4000, ["nested too deeply", "Leave it out"]),
        (b"import torch\nx = " + b"[" * 300 + b"]" * 300, ["nested too deeply"]),
        (b"import torch\nx = " + b"-" * 9000 + b"1", ["nested too deeply"]),
        (b"#" * 2_000_001, ["more than 2 MB", "Name the script itself"]),
        (b"import torch\nif x:\n\ty\n        z\n", ["line 4", "not Python"]),
        (b"import torch\nx = 'abc\n", ["line 2", "not Python"]),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_what_to_do(doctor, tmp_path, content, said):
    path = tmp_path / "script.py"
    path.write_bytes(content)
    run = doctor(path, GOOD)
    assert run.code == 2
    assert run.err.startswith(f"error: {path}")
    assert len(run.err) < 600
    for words in said:
        assert words in run.err
    # The doctor still checks the other file.
    assert "1 file: nothing found." in run.out


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n# only a comment",
        b"\xef\xbb\xbfimport torch\n",
        b"# -*- coding: latin-1 -*-\nname = 'caf\xe9'\nimport torch\n",
        b"import torch\r\nx = 1\r\n",
        b"import torch\rx = 1\r",
        b"import torch\nx = " + b" + ".join([b"1"] * 700) + b"\n",
        b"import torch\nx = '\\d'\n",
        b"import torch\nx = 1\x0c\n",
    ],
)
def test_a_file_that_is_odd_but_right_is_read(doctor, tmp_path, content):
    path = tmp_path / "script.py"
    path.write_bytes(content)
    run = doctor(path)
    assert (run.code, run.err) == (0, "")


def test_deep_nesting_in_a_training_script_is_no_crash(doctor, tmp_path):
    path = tmp_path / "script.py"
    path.write_text(GOOD.read_text() + "x = " + " + ".join(["1"] * 3000) + "\n")
    assert doctor(path).code in (0, 2)
    path.write_text(BAD.read_text() + "x = " + " + ".join(["1"] * 3000) + "\n")
    assert doctor(path).code in (1, 2)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"cells": 3}', "\xff", '{"cells": [3, {"cell_type": "code"}]}'],
)
def test_a_broken_notebook_is_no_crash(doctor, tmp_path, content):
    path = tmp_path / "broken.ipynb"
    path.write_bytes(content.encode("latin-1"))
    run = doctor(path)
    if "cell_type" in content:
        assert run.code == 0
    else:
        assert run.code == 2
        assert "is not a notebook" in run.err
        assert "save it again" in run.err


def test_a_wrong_line_in_a_notebook_is_named_by_its_cell(doctor, tmp_path):
    path = tmp_path / "wrong.ipynb"
    path.write_text(notebook("import torch", "x = 1\ny = = 2"))
    assert "cell 3, line 2: not Python: 'y = = 2'" in doctor(path).err


def test_a_missing_file_does_not_hide_the_others(doctor, tmp_path):
    run = doctor(tmp_path / "missing.py", BAD)
    assert run.code == 2
    assert "missing.py does not exist. Check the spelling." in run.err
    assert "LS01" in run.out


def test_names_that_cannot_be_files_are_no_crash(doctor):
    assert doctor("x" * 5000).code == 2
    assert "is a device" in doctor("/dev/zero").err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_says_so(doctor, tmp_path):
    path = tmp_path / "secret.py"
    path.write_text("import torch\n")
    path.chmod(0)
    run = doctor(path)
    assert run.code == 2
    assert "cannot be read: Permission denied" in run.err


def test_links_in_a_circle_come_to_an_end(doctor, tmp_path):
    (tmp_path / "bad.py").write_bytes(BAD.read_bytes())
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "itself.py").symlink_to(tmp_path / "itself.py")
    (tmp_path / "nowhere.py").symlink_to(tmp_path / "nothing")
    document = json.loads(doctor("--json", tmp_path).out)
    assert [f["path"] for f in document["findings"]] == [str(tmp_path / "bad.py")]
    assert document["errors"] == []
    assert "cannot be read" in doctor(tmp_path / "itself.py").err


def test_a_reader_that_leaves_early_is_no_crash(tmp_path):
    command = f"{sys.executable} -m lockstep doctor {BAD} {SAVES} | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_it_starts_without_torch_typer_and_rich():
    code = (
        "import sys; sys.argv = ['lockstep', 'doctor', sys.argv[1]]\n"
        "from lockstep.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'numpy', 'typer', 'pydantic', 'rich'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code, str(GOOD)], check=True, capture_output=True)


def test_help_names_every_flag(doctor):
    run = doctor("--help")
    assert run.code == 0
    for flag in (
        "--select",
        "--ignore",
        "--format",
        "--json",
        "--fix",
        "--unsafe-fixes",
        "--rules",
    ):
        assert flag in run.out


def test_the_hook_starts_the_command():
    hooks = (Path(__file__).parent.parent.parent / ".pre-commit-hooks.yaml").read_text()
    assert "id: lockstep-doctor\n" in hooks
    assert "entry: lockstep doctor\n" in hooks
    assert "types_or: [python, jupyter]\n" in hooks
