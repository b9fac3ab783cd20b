import hashlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lockstep.data.download import fetch
from lockstep.errors import DataError

CONTENT = bytes(range(256)) * 4096
SHA256 = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
MD5 = "md5:" + hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/absent":
            self.send_error(404)
            return
        self.send_response(200)
        if self.path != "/unsized":
            self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[:1000] if self.path == "/cut" else CONTENT)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture
def closed_port(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    # Bound but not listening: nobody else can open it during the test.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("checksum", [SHA256, MD5])
def test_a_file_with_the_right_checksum_is_saved(server, tmp_path, checksum):
    target = tmp_path / "new" / "folder" / "file"
    assert fetch(f"{server}/file", target, checksum) == target
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


def test_a_file_with_another_checksum_is_refused_and_nothing_is_left(server, tmp_path):
    with pytest.raises(DataError, match=f"/file arrived with md5 {MD5[4:]} instead of 1234"):
        fetch(f"{server}/file", tmp_path / "file", "md5:1234")
    assert not list(tmp_path.iterdir())


def test_a_refused_file_leaves_the_earlier_one_alone(server, tmp_path):
    target = tmp_path / "file"
    target.write_bytes(b"earlier")
    with pytest.raises(DataError):
        fetch(f"{server}/file", target, "md5:1234")
    assert target.read_bytes() == b"earlier"


def test_progress_ends_at_the_size_of_the_file(server, tmp_path):
    calls = []
    fetch(f"{server}/file", tmp_path / "file", MD5, lambda *call: calls.append(call))
    assert calls[-1] == (len(CONTENT), len(CONTENT))
    assert calls == sorted(calls)


def test_progress_has_no_total_when_the_server_does_not_tell(server, tmp_path):
    calls = []
    fetch(f"{server}/unsized", tmp_path / "file", MD5, lambda *call: calls.append(call))
    assert calls[-1] == (len(CONTENT), None)


def test_an_absent_file_is_refused_with_the_answer_of_the_server(server, tmp_path):
    with pytest.raises(DataError, match="/absent answered 404"):
        fetch(f"{server}/absent", tmp_path / "file", MD5)
    assert not list(tmp_path.iterdir())


def test_a_file_that_breaks_off_is_refused(server, tmp_path):
    with pytest.raises(DataError, match=r"/cut .*1,?000"):
        fetch(f"{server}/cut", tmp_path / "file", MD5)
    assert not list(tmp_path.iterdir())


def test_no_server_is_a_data_error(closed_port, tmp_path):
    with pytest.raises(DataError, match=r"could not be downloaded to .*refused"):
        fetch(f"{closed_port}/file", tmp_path / "file", MD5)


def test_a_folder_that_is_a_file_is_a_data_error(server, tmp_path):
    (tmp_path / "taken").write_bytes(b"")
    with pytest.raises(DataError, match="could not be downloaded"):
        fetch(f"{server}/file", tmp_path / "taken" / "file", MD5)


def test_an_unknown_checksum_is_refused_before_anything_is_fetched(closed_port, tmp_path):
    with pytest.raises(DataError, match=r"'crc:1' is neither 'md5:\.\.\.' nor"):
        fetch(f"{closed_port}/file", tmp_path / "file", "crc:1")


def test_several_fetches_at_once_leave_one_whole_file(server, tmp_path):
    target = tmp_path / "file"
    threads = [
        threading.Thread(target=fetch, args=(f"{server}/file", target, MD5)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert list(tmp_path.iterdir()) == [target]
    assert target.read_bytes() == CONTENT
