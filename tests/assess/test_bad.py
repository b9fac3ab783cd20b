"""Submissions that misbehave: a clear verdict within the limit, the grader alive, nothing left."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.assess.exam import EXAMS
from lockstep.assess.grade import Grade, Grading, grade

EXAM = replace(
    EXAMS["digits"], epochs=2, target=0.1, train_samples=101, test_samples=33, seconds=120.0
)
ROOT = """
import os, shutil, subprocess, sys, time
from pathlib import Path
"""


def graded(folder: Path, program: str, *, seconds: float = 120.0, timeout: float = 60.0) -> Grade:
    (folder / "train.py").write_text(program)
    exam = replace(EXAM, seconds=seconds)
    return grade(folder, Grading(exam=exam, seed=1, speed=False, oracle=False, timeout=timeout))


def reason(result: Grade) -> str:
    """Of the first check; nothing else is judged."""
    first, *others = result.verdicts.values()
    assert first.passed is False
    assert all(verdict.passed is None for verdict in others)
    assert not result.passed
    return first.reason


def running(word: str) -> list[str]:
    """Processes with a word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if word.encode() in words and int(path.parent.name) != os.getpid():
            found.append(path.parent.name)
    return found


def test_one_that_waits_forever_has_hung(tmp_path: Path):
    assert "it hung" in reason(graded(tmp_path, ROOT + "time.sleep(3600)", timeout=3.0))


def test_one_that_computes_forever_is_ended_at_the_limit(tmp_path: Path):
    found = graded(tmp_path, ROOT + "while True: pass", seconds=4.0)
    assert "stopped it at the limit of 4.0 s, with 0 of 2 epochs done" in reason(found)


def test_one_that_fails_is_quoted(tmp_path: Path):
    found = graded(tmp_path, "raise RuntimeError('no such luck')")
    assert "exit code 1: RuntimeError: no such luck" in reason(found)
    assert any("Traceback" in line for line in found.verdicts["start"].details)


def test_one_that_is_no_python_is_quoted(tmp_path: Path):
    assert "SyntaxError" in reason(graded(tmp_path, "def main(:\n"))


def test_one_that_refuses_the_arguments_is_quoted(tmp_path: Path):
    program = "import argparse; p = argparse.ArgumentParser(); p.add_argument('--lr'); "
    found = reason(graded(tmp_path, program + "p.parse_args()"))
    assert "does not accept the arguments --data" in found
    assert "unrecognized arguments: --data" in found


def test_one_that_is_not_there(tmp_path: Path):
    found = grade(tmp_path, Grading(exam=EXAM, seed=1))
    assert "train.py is not in" in reason(found)


def test_one_that_ends_at_once_gets_a_list_of_missing_files(tmp_path: Path):
    assert "2 of 2 files are not in the folder" in reason(graded(tmp_path, "pass"))


def test_one_that_talks_too_much_is_cut_short(tmp_path: Path):
    found = graded(tmp_path, "while True: print('x' * 10_000)")
    assert "it printed more than 8 MB" in reason(found)
    assert all(len(line) <= 200 for line in found.verdicts["start"].details)


def test_one_that_leaves_a_daemon_behind_is_cleaned_up_after(tmp_path: Path):
    # A session of its own, and nothing in its environment by which one could know it.
    program = ROOT + "subprocess.Popen(['sleep', '73915'], start_new_session=True, env={})"
    found = reason(graded(tmp_path, program))
    assert "process(es) running, which the grader stopped: sleep 73915" in found
    assert not running("73915")


def test_one_that_starts_too_many_processes_is_ended_with_all_of_them(tmp_path: Path):
    program = ROOT + "for _ in range(300): subprocess.Popen(['sleep', '73916'])\ntime.sleep(60)"
    assert "it started more than 200 processes" in reason(graded(tmp_path, program))
    assert not running("73916")


# Written so that the rule for forking does not see it: the program is forked, and its parent is
# the process that forks. A program that names os.getppid gets a new interpreter.
STARTER = "starter = getattr(os, 'get' + 'ppid')()\n"
WATCHER = (
    "import pathlib\n"
    + STARTER
    + (
        "stat = pathlib.Path(f'/proc/{starter}/stat').read_text()\n"
        "starter = int(stat.rpartition(')')[2].split()[1])\n"
    )
)


@pytest.mark.parametrize(
    ("whom", "words"),
    [
        ("starter = os.getppid()\n", "the process that watched it was ended"),
        (WATCHER, "the process that watched it was ended"),
        # Whether both ranks have been started by then is chance.
        (STARTER, "signal 9 ended a rank|killed the process that had started it"),
    ],
    ids=["the parent", "the process that watches", "the process that forks"],
)
def test_one_that_ends_its_watcher_is_found_out(tmp_path: Path, whom: str, words: str):
    # Another worker may run this test with another parameter at the same time.
    seconds = str(10**6 + os.getpid())
    program = ROOT + (
        f"subprocess.Popen(['sleep', '{seconds}'], start_new_session=True)\n"
        f"{whom}os.kill(starter, 9)\ntime.sleep(60)"
    )
    assert re.search(words, reason(graded(tmp_path, program)))
    assert not running(seconds)


def test_one_that_deletes_what_it_runs_in_harms_nobody(tmp_path: Path):
    program = ROOT + "shutil.rmtree(Path(__file__).parents[1], ignore_errors=True)"
    reason(graded(tmp_path, program))
    assert (tmp_path / "train.py").read_text() == program


def test_one_that_deletes_its_own_folder_gets_it_back(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("all my work")
    program = ROOT + f"shutil.rmtree({str(tmp_path)!r}, ignore_errors=True)"
    found = graded(tmp_path, program)
    assert (tmp_path / "notes.txt").read_text() == "all my work"
    assert (tmp_path / "train.py").read_text() == program
    assert "notes.txt was deleted and has been restored" in found.notes


def test_a_file_that_was_changed_meanwhile_is_kept_both_ways(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("before")
    path = str(tmp_path / "notes.txt")
    found = graded(tmp_path, f"open({path!r}, 'w').write('after')")
    assert (tmp_path / "notes.txt").read_text() == "after"
    assert (tmp_path / "notes.txt.before-grading").read_text() == "before"
    assert "notes.txt was changed" in found.notes[0]


def test_a_link_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path):
    secret = tmp_path / "secret.py"
    secret.write_text("print('secret')")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.py").symlink_to(secret)
    found = grade(folder, Grading(exam=EXAM, seed=1))
    assert "train.py is not in" in reason(found)
    assert found.notes == ("train.py leads out of the folder and was skipped",)


def test_its_surroundings_are_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    monkeypatch.setenv("PYTHONSTARTUP", "/nowhere")
    program = ROOT + (
        "home = Path(os.environ['HOME'])\n"
        "assert 'SECRET_TOKEN' not in os.environ and 'PYTHONSTARTUP' not in os.environ\n"
        "assert home.parents[1] == Path.cwd().parent and Path.home() == home\n"
        "assert os.environ['OMP_NUM_THREADS'] == '1'\n"
        "raise SystemExit('all clean')"
    )
    assert "all clean" in reason(graded(tmp_path, program))


def test_a_file_that_is_written_elsewhere_is_seen(tmp_path: Path):
    outside = tmp_path / "elsewhere.txt"
    (tmp_path / "mine").mkdir()
    save = "            torch.save("
    program = EXAM.reference.replace(save, f"            open({str(outside)!r}, 'w')\n{save}")
    found = graded(tmp_path / "mine", program).verdicts
    assert found["saving"].passed is False
    assert f"it writes {outside}" in found["saving"].reason
    assert found["start"].passed
