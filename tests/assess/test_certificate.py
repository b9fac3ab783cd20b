"""Certificates: what they say can be read, and nothing in them can be changed."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assess.sheets import good, task
from lockstep.assess import keys
from lockstep.assess.certificate import checked_name, payload_of, write
from lockstep.assess.certificate.fonts import _files, runs
from lockstep.assess.signature import opened, payload_word, sign, verify
from lockstep.errors import AssessError, Refused

KEY = keys.Ed25519PrivateKey.generate()
TRUSTED = keys.raw(KEY.public_key())


def certificates(folder: Path, name: str = "Ada Lovelace", *, taught: bool = True, **how: float):
    payload = payload_of(good(), task(**how), name, by_instructor=taught)
    return {path.suffix: path.read_bytes() for path in write(folder, payload, KEY)}


@pytest.mark.parametrize("form", [".svg", ".pdf"])
def test_a_certificate_says_who_what_and_when(tmp_path: Path, form: str):
    found = verify(certificates(tmp_path)[form], TRUSTED, own=False)
    said = found.payload
    assert (said["name"], said["score"], said["of"]) == ("Ada Lovelace", 10, 10)
    assert (said["accuracy"], said["gain"], said["replicas"]) == (0.9916, 1.71, 2)
    assert said["by"] == "instructor"
    assert said["in_time"]
    years = datetime.fromisoformat(said["expires"]) - datetime.fromisoformat(said["graded"])
    assert years == timedelta(days=730)


def test_every_byte_of_an_svg_counts(tmp_path: Path):
    content = certificates(tmp_path)[".svg"]
    for at in range(len(content)):
        edited = bytearray(content)
        edited[at] ^= 1
        with pytest.raises((Refused, AssessError)):
            verify(bytes(edited), TRUSTED, own=False)


def test_bytes_all_over_a_pdf_count(tmp_path: Path):
    content = certificates(tmp_path)[".pdf"]
    last = range(len(content) - 300, len(content))
    for at in [*range(0, len(content), 97), *last]:
        edited = bytearray(content)
        edited[at] ^= 1
        with pytest.raises((Refused, AssessError)):
            verify(bytes(edited), TRUSTED, own=False)


@pytest.mark.parametrize("form", [".svg", ".pdf"])
def test_a_certificate_with_bytes_cut_off_or_added_is_refused(tmp_path: Path, form: str):
    content = certificates(tmp_path)[form]
    for edited in (
        content[:-1],
        content[:-400],
        content + b"\n",
        content + content,
        b" " + content,
    ):
        with pytest.raises(Refused, match=r"cut off|edited"):
            verify(edited, TRUSTED, own=False)


def test_a_signature_does_not_go_from_one_kind_of_file_to_another(tmp_path: Path):
    content = certificates(tmp_path)[".svg"]
    moved = re.sub(rb"\n<!-- (lockstep-signature .*) -->\n\Z", rb"\n% \1\n", content)
    assert moved != content
    with pytest.raises(Refused, match="edited"):
        verify(moved, TRUSTED, own=False)


def test_a_certificate_by_another_key_is_refused(tmp_path: Path):
    content = certificates(tmp_path)[".svg"]
    other = keys.raw(keys.Ed25519PrivateKey.generate().public_key())
    with pytest.raises(Refused, match="signed by another key"):
        verify(content, other, own=False)
    with pytest.raises(Refused, match="Give the instructor's key with --public-key"):
        verify(content, other, own=True)


def test_an_instructor_does_not_sign_with_this_machines_key(tmp_path: Path):
    with pytest.raises(Refused, match="claims to be graded by an instructor"):
        verify(certificates(tmp_path)[".svg"], TRUSTED, own=True)
    own = certificates(tmp_path, taught=False)[".svg"]
    assert verify(own, TRUSTED, own=True).payload["by"] == "self"
    assert b"SELF-GRADED" in own
    assert b"SELF-GRADED" not in certificates(tmp_path)[".svg"]


def test_a_certificate_expires(tmp_path: Path):
    content = certificates(tmp_path)[".pdf"]
    later = datetime.now(UTC) + timedelta(days=731)
    assert verify(content, TRUSTED, own=False, now=later - timedelta(days=2))
    with pytest.raises(Refused, match="it expired on"):
        verify(content, TRUSTED, own=False, now=later)


def test_a_signed_file_must_also_be_a_certificate():
    with pytest.raises(AssessError, match="not a lockstep certificate"):
        opened(b"<svg></svg>\n")
    for word in ("", payload_word({"name": "Ada"}), "lockstep-payload:AAAA"):
        with pytest.raises(Refused, match="does not contain the facts"):
            opened(sign(f"<svg>{word}</svg>\n".encode(), "svg", KEY))


def test_a_late_certificate_says_so(tmp_path: Path):
    content = certificates(tmp_path, minutes_ago=100)[".svg"]
    assert not verify(content, TRUSTED, own=False).payload["in_time"]
    assert b"of 90 allowed, late" in content


@pytest.mark.parametrize(
    "name", ["Łukasz Żółć", "李小龙", "Ελένη", "Ольга", "山田 太郎", "김민준", '<b>&"Bobby']
)
def test_names_with_any_letters_come_out_in_both_files(tmp_path: Path, name: str):
    if not any(path.stem == "DejaVuSans" for path in _files()):
        pytest.skip("the fonts of this machine have few letters")
    found = certificates(tmp_path, name)
    texts = [element.text for element in ElementTree.fromstring(found[".svg"]).iter()]
    assert name in texts
    assert verify(found[".pdf"], TRUSTED, own=False).payload["name"] == name
    assert "".join(letters for _, letters in runs(name, bold=True)) == name


def test_letters_that_no_font_has_are_named(tmp_path: Path):
    with pytest.raises(AssessError, match=r"no font on this machine has \U00010A60"):
        certificates(tmp_path, "Zain \U00010a60")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "  ", "a\x00b", "x" * 81, "\ud800"])
def test_a_text_that_is_no_name_is_refused(name: str):
    with pytest.raises(AssessError):
        checked_name(name)


def test_a_long_name_stays_inside_the_frame(tmp_path: Path):
    from reportlab.pdfbase.pdfmetrics import stringWidth

    from lockstep.assess.certificate.layout import Text, drawing

    name = "W" * 80
    shapes = drawing(payload_of(good(), task(), name, by_instructor=True), "key")
    (text,) = [s for s in shapes if isinstance(s, Text) and s.text == name]
    assert sum(stringWidth(part, font, text.size) for font, part in runs(name, bold=True)) < 842


def test_a_pdf_ends_as_readers_want_it_to(tmp_path: Path):
    content = certificates(tmp_path)[".pdf"]
    # They look for this in the last 1024 bytes.
    assert b"%%EOF" in content[-1024:]
    assert content.startswith(b"%PDF-")


def test_a_key_is_the_owners_alone_and_never_overwritten(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    made = keys.own_key()
    again = keys.own_key()
    assert made is not None
    assert again is not None
    assert keys.raw(made.public_key()) == keys.raw(again.public_key())
    assert (tmp_path / keys.OWN).stat().st_mode & 0o777 == 0o600
    key, public = keys.new_pair(tmp_path / "teacher.pem")
    assert keys.raw(keys.public_key(public)) == keys.raw(key.public_key())
    with pytest.raises(AssessError, match="already exists"):
        keys.new_pair(tmp_path / "teacher.pem")
    public.unlink()
    with pytest.raises(AssessError, match="already exists"):
        keys.new_pair(tmp_path / "teacher.pem")
    for read in (keys.private_key, keys.public_key):
        with pytest.raises(AssessError):
            read(tmp_path / "nothing")
        (tmp_path / "text").write_text("no key")
        with pytest.raises(AssessError):
            read(tmp_path / "text")
