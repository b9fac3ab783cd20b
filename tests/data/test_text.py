import sysconfig

import pytest
import torch

from lockstep.data.text import stdlib
from lockstep.errors import DataError


@pytest.fixture
def library(monkeypatch, tmp_path):
    """A small library in place of Python's own."""
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    return tmp_path


def write(root, name, content):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def text(data):
    return bytes(torch.cat([data.train.tokens, data.test.tokens]).tolist())


def test_the_standard_library_gives_four_megabytes_of_which_a_tenth_is_the_test():
    data = stdlib()
    assert data.train.tokens.dtype == torch.uint8
    assert len(data.train.tokens) + len(data.test.tokens) <= 4_000_000
    assert len(data.test.tokens) == (len(data.train.tokens) + len(data.test.tokens)) // 10
    assert b"def " in text(data)
    inputs, targets = data.train[0]
    assert inputs.shape == (128,)
    assert torch.equal(inputs[1:], targets[:-1])


def test_the_text_is_the_same_each_time():
    assert torch.equal(stdlib(megabytes=0.5).train.tokens, stdlib(megabytes=0.5).train.tokens)


def test_less_text_is_the_beginning_of_more():
    assert text(stdlib(megabytes=0.2)).startswith(text(stdlib(megabytes=0.1)))


def test_sources_are_joined_with_a_zero_byte_after_each(library):
    write(library, "a.py", b"a" * 30)
    write(library, "deep/b.py", b"b" * 30)
    assert sorted(text(stdlib(length=2)).split(b"\0")) == [b"", b"a" * 30, b"b" * 30]


@pytest.mark.parametrize(
    "name",
    [
        "site-packages/x.py",
        "test/x.py",
        "lib2to3/tests/x.py",
        "idlelib/x.py",
        "json/__pycache__/x.py",
        "_sysconfigdata__linux.py",
        "sitecustomize.py",
        "x.txt",
    ],
)
def test_a_file_that_is_no_source_of_the_library_is_left_out(library, name):
    write(library, "a.py", b"a" * 60)
    write(library, name, b"x" * 60)
    assert text(stdlib(length=2)) == b"a" * 60 + b"\0"


def test_a_source_that_cannot_be_read_is_skipped(library):
    write(library, "a.py", b"a" * 60)
    (library / "broken.py").symlink_to(library / "absent")
    assert text(stdlib(length=2)) == b"a" * 60 + b"\0"


@pytest.mark.parametrize("length", [0, -1])
def test_a_window_without_bytes_is_refused(length):
    with pytest.raises(DataError, match=f"length={length}: give 1 or more"):
        stdlib(length)


@pytest.mark.parametrize("megabytes", [0.001, 0.0, -1.0])
def test_a_text_too_short_for_one_window_is_refused(megabytes):
    with pytest.raises(DataError, match=f"more than megabytes={megabytes}"):
        stdlib(128, megabytes=megabytes)
