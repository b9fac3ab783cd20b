"""Programs that a server forks behave as programs in a new interpreter do."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.processes import forked
from lockstep.processes.fork import end_group
from lockstep.processes.forked import close_servers, server_ids, start_forked
from lockstep.processes.fresh import Process, start_fresh
from lockstep.processes.ports import free_port, is_free
from lockstep.world import elsewhere

Start = Callable[..., Process]
BOTH = pytest.mark.parametrize("start", [start_fresh, start_forked], ids=["fresh", "forked"])


def ran(start: Start, folder: Path, text: str, *arguments: str, **options: Any) -> tuple[int, str]:
    """Run a script; return its exit code and what it printed."""
    script = folder / "script.py"
    script.write_text(text)
    env = {**elsewhere(), **options.pop("env", {})}
    with (folder / "log").open("w+b") as log:
        options.setdefault("cwd", folder)
        process = start([str(script), *arguments], env=env, output=log, **options)
        code = process.wait(60)
        log.seek(0)
        return code, log.read().decode()


@BOTH
@pytest.mark.parametrize(
    ("text", "code", "printed"),
    [
        ("print('fine')", 0, "fine\n"),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('no data')", 1, "no data\n"),
        ("import os; os._exit(7)", 7, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
        ("raise KeyboardInterrupt", -signal.SIGINT, None),
        ("import sys; print(sys.argv[1:], __name__)", 0, "['a', 'b c'] __main__\n"),
        ("import atexit; atexit.register(print, 'bye')", 0, "bye\n"),
        (
            "from threading import Timer\nTimer(0.1, print, ('late',)).start()",
            0,
            "late\n",
        ),
        ("import sys; sys.stdout.write('no newline')", 0, "no newline"),
        ("import weakref\np = weakref.proxy({1, 2})\nprint('fine')", 0, "fine\n"),
        ("import atexit\natexit.register(print, 'bye')\nraise KeyboardInterrupt", -2, None),
        ("import os\ntry: os.open('/dev/tty', 2)\nexcept OSError: print('none')", 0, "none\n"),
        ("import sys; print(repr(sys.stdin.read()))", 0, "''\n"),
        (
            "import pickle\nclass A: pass\nprint(pickle.loads(pickle.dumps(A)) is A)",
            0,
            "True\n",
        ),
    ],
)
def test_a_program_ends_and_prints_as_python_does(
    tmp_path: Path, start: Start, text: str, code: int, printed: str | None
):
    found = ran(start, tmp_path, text, "a", "b c")
    assert found[0] == code
    assert printed is None or found[1] == printed


def test_errors_look_alike_in_both(tmp_path: Path):
    text = "def f():\n    return 1 / 0\n\nf()"
    assert ran(start_fresh, tmp_path, text) == ran(start_forked, tmp_path, text)
    broken = "print('never')\nx = = 1"
    assert ran(start_fresh, tmp_path, broken) == ran(start_forked, tmp_path, broken)


@BOTH
def test_a_program_gets_its_own_folder_environment_and_path(tmp_path: Path, start: Start):
    (tmp_path / "beside.py").write_text("NAME = 'beside'")
    place = tmp_path / "elsewhere"
    place.mkdir()
    text = (
        "import os, sys, beside\n"
        "print(os.getcwd(), os.environ['WORD'], beside.NAME, sys.path[0], __file__)"
    )
    code, printed = ran(start, tmp_path, text, env={"WORD": "given"}, cwd=place)
    assert code == 0, printed
    expected = f"{place} given beside {tmp_path} {tmp_path / 'script.py'}\n"
    assert printed == expected


@BOTH
def test_files_that_a_script_leaves_open_are_written(tmp_path: Path, start: Start):
    assert ran(start, tmp_path, "f = open('notes.txt', 'w')\nf.write('kept')")[0] == 0
    assert (tmp_path / "notes.txt").read_text() == "kept"


@BOTH
def test_file_descriptors_are_passed_on_under_their_numbers(tmp_path: Path, start: Start):
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as answers:
        text = "import os, sys\nos.write(int(sys.argv[1]), b'answer')"
        assert ran(start, tmp_path, text, str(writing), keep=(writing,))[0] == 0
        os.close(writing)
        assert answers.read() == b"answer"


@BOTH
def test_files_that_a_program_leaves_open_are_whole(tmp_path: Path, start: Start):
    text = (
        "import gzip, zipfile, weakref\n"
        "class Odd:\n    __class__ = property(lambda self: 1 / 0)\n"
        "odd, proxy = Odd(), weakref.proxy({1})\n"
        "plain = open('plain.txt', 'w'); plain.write('hello')\n"
        "packed = gzip.open('packed.gz', 'wt'); packed.write('hello')\n"
        "many = zipfile.ZipFile('many.zip', 'w'); many.writestr('one', 'hello')\n"
    )
    assert ran(start, tmp_path, text)[0] == 0
    assert (tmp_path / "plain.txt").read_text() == "hello"
    with gzip.open(tmp_path / "packed.gz", "rt") as packed:
        assert packed.read() == "hello"
    with zipfile.ZipFile(tmp_path / "many.zip") as many:
        assert many.read("one") == b"hello"


def test_an_error_before_the_program_starts_is_printed(tmp_path: Path):
    code, printed = ran(start_forked, tmp_path, "print('never')", hook="nowhere:enter")
    assert code == 1
    assert "No module named 'nowhere'" in printed


def test_a_safe_path_is_respected(tmp_path: Path):
    (tmp_path / "beside").mkdir()
    env = {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(tmp_path / "beside")}
    text = "import sys; print(sys.path)"
    fresh, forked = (ran(start, tmp_path, text, env=env) for start in (start_fresh, start_forked))
    assert fresh == forked


def test_an_interrupted_request_does_not_mix_up_programs(tmp_path: Path, monkeypatch):
    def interrupted(*given: Any) -> bytes:
        monkeypatch.undo()
        raise KeyboardInterrupt

    ran(start_forked, tmp_path, "print('first')")
    monkeypatch.setattr(forked, "_receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ran(start_forked, tmp_path, "import time; time.sleep(60)")
    assert ran(start_forked, tmp_path, "print('next')") == (0, "next\n")


def test_a_new_server_ends_no_program_of_another(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text("import sys; sys.stdin.read()")
    programs, pipes = [], []
    with (tmp_path / "log").open("wb") as log:
        for threads in ("1", "2", "3"):
            reading, writing = os.pipe()
            env = {**elsewhere(), "OMP_NUM_THREADS": threads}
            programs.append(start_forked([str(script)], env=env, stdin=reading, output=log))
            os.close(reading)
            pipes.append(writing)
    assert [program.poll() for program in programs] == [None] * 3
    for pipe in pipes:
        os.close(pipe)
    assert [program.wait(60) for program in programs] == [0] * 3
    close_servers()


def test_forked_programs_draw_different_random_numbers(tmp_path: Path):
    text = "import random, numpy, torch\nprint(random.random(), numpy.random.rand(), torch.rand(1))"
    first, second = (ran(start_forked, tmp_path, text)[1].split() for _ in range(2))
    assert all(a != b for a, b in zip(first, second, strict=True))


def test_a_forked_program_is_started_again_when_its_server_was_killed(tmp_path: Path):
    # The server must answer before it is killed: a request without an answer is made again.
    text = "import os, time\ntime.sleep(0.5)\nos.kill(os.getppid(), 9)\ntime.sleep(9)"
    assert ran(start_forked, tmp_path, text)[0] == -9
    assert ran(start_forked, tmp_path, "print('again')") == (0, "again\n")


def test_programs_with_another_thread_count_get_another_server(tmp_path: Path):
    text = "import torch; print(torch.get_num_threads())"
    for threads in ("1", "2"):
        env = {"OMP_NUM_THREADS": threads}
        assert ran(start_forked, tmp_path, text, env=env) == (0, f"{threads}\n")
    close_servers()
    assert not server_ids()


@BOTH
def test_ending_a_group_ends_what_a_program_has_started(tmp_path: Path, start: Start):
    (tmp_path / "script.py").write_text(
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '60'])\nprint(child.pid, flush=True)\ntime.sleep(60)"
    )
    with (tmp_path / "log").open("w+b") as log:
        process = start(["script.py"], env=elsewhere(), output=log, cwd=tmp_path)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        assert process.poll() is None
        while not (words := (tmp_path / "log").read_text()).endswith("\n"):
            time.sleep(0.02)
        end_group(process.pid)
        assert process.wait(20) == -9
    stat = Path(f"/proc/{int(words)}/stat")
    while stat.exists() and " Z " not in stat.read_text():
        time.sleep(0.02)


def test_a_free_port_can_be_listened_on():
    port = free_port()
    assert is_free("127.0.0.1", port)
