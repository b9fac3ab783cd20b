"""lockstep lab: the list, and what it says when a lab cannot be opened."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lockstep.errors import UsageError
from lockstep.labs.shared import serve
from lockstep.labs.shared.catalogue import labs


def lockstep(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lockstep", "lab", *arguments],
        env=os.environ | {"HOME": str(home), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_number_the_labs_are_listed(tmp_path: Path) -> None:
    ended = lockstep(tmp_path)
    assert ended.returncode == 0
    for lab in labs():
        assert lab.title in ended.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_list_as_json(tmp_path: Path) -> None:
    listed = json.loads(lockstep(tmp_path, "--json").stdout)
    assert [one["lab"] for one in listed] == [0, 1, 2, 3]
    assert listed[1]["tasks"] == {"convergence": False, "batches": False}
    assert listed[1]["quiz"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["7"], "there is no lab 7. The labs are: 0, 1, 2, 3."),
        (["--run"], "--run needs the number of a lab, for example: lockstep lab 1 --run"),
        (["1", "--json"], "--json works with the list of labs and with --run."),
    ],
)
def test_misuse_is_refused_with_a_message(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    ended = lockstep(tmp_path, *arguments)
    assert ended.returncode == 2
    assert message in ended.stderr


def test_the_message_for_a_taken_port_names_a_free_one(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ended = lockstep(tmp_path, "1", "--port", str(port), "--no-browser")
    assert ended.returncode == 2
    assert f"port {port} is taken" in ended.stderr
    assert "is free." in ended.stderr


def test_an_address_that_is_not_this_machine_is_refused(tmp_path: Path) -> None:
    ended = lockstep(tmp_path, "1", "--port", "2718", "--host", "192.0.2.1", "--no-browser")
    assert ended.returncode == 2
    assert "may not be used on 192.0.2.1" in ended.stderr


@pytest.mark.parametrize("missing", ["marimo", "anywidget"])
def test_the_message_for_a_missing_library_says_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = serve.find_spec
    monkeypatch.setattr(serve, "find_spec", lambda name: None if name == missing else found(name))
    with pytest.raises(UsageError, match=rf"need {missing}\. Install it with: pip install"):
        serve.check_installed()


def test_without_a_browser_it_prints_how_to_open_the_lab(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "lockstep", "lab", "1"],
        # It is chosen where there is no screen, and shows no lab.
        env=os.environ | {"HOME": str(tmp_path), "NO_COLOR": "1", "BROWSER": "w3m"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process:
        said = [process.stdout.readline() for _ in range(5)]
        process.terminate()
    port = re.match(r"http://127\.0\.0\.1:(\d+)/", said[1])
    assert port is not None, said
    assert said[3] == "lockstep could not open a browser here: open the address yourself.\n"
    assert f"ssh -L {port[1]}:127.0.0.1:{port[1]} " in said[4]


@pytest.mark.parametrize(("name", "works"), [("firefox", True), ("firefox", False), ("w3m", True)])
def test_a_browser_that_does_not_open_or_shows_no_lab_is_none(
    name: str, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(name=f"/usr/bin/{name}", open=lambda url: works)
    monkeypatch.setattr("webbrowser.get", lambda: found)
    assert serve.opened("http://127.0.0.1:2718") == (name == "firefox" and works)
