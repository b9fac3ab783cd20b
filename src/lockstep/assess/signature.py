"""Sign every byte of a file in its last line, whatever its format.

A certificate also contains its facts as one word for programs. Its last line has the key and the
signature over everything before it, so nobody can change, add or cut off anything.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lockstep.assess.keys import fingerprint, is_signed, raw
from lockstep.errors import AssessError, Refused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FORMS = {"svg": (b"<!-- ", b" -->\n"), "pdf": (b"% ", b"\n")}
"""How a comment begins and ends in each file format."""
WORD = b"lockstep-signature"
PAYLOAD = "lockstep-payload:"
_PAYLOAD = re.compile(PAYLOAD.encode() + rb"([A-Za-z0-9_-]+)")
_DOMAIN = b"lockstep certificate 1\n"


def payload_word(payload: dict[str, Any]) -> str:
    """Return the word that holds the facts; a signed file contains it once."""
    content = json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()
    return PAYLOAD + base64.urlsafe_b64encode(content).decode().rstrip("=")


def sign(document: bytes, form: str, key: Ed25519PrivateKey) -> bytes:
    """Return the document with the signature as its last line."""
    begin, end = FORMS[form]
    body = document.rstrip(b"\n") + b"\n"
    signature = key.sign(_DOMAIN + begin + body)
    words = b" ".join([WORD, raw(key.public_key()).hex().encode(), signature.hex().encode()])
    return body + begin + words + end


@dataclass(frozen=True, kw_only=True)
class Signed:
    """A certificate whose signature matches its key."""

    payload: dict[str, Any]
    key: bytes

    @property
    def by(self) -> str:
        """The key in a form that people can compare."""
        return fingerprint(self.key)


def opened(content: bytes) -> Signed:
    """Return the facts of a certificate that nobody changed since it was signed, by any key.

    Raise `AssessError` if the file is not a certificate, and `Refused` if it was edited.
    """
    payloads = _PAYLOAD.findall(content)
    found = None
    for begin, end in FORMS.values():
        line = re.escape(begin + WORD) + rb" ([0-9a-f]{64}) ([0-9a-f]{128})" + re.escape(end)
        match = re.search(rb"(?<=\n)" + line + rb"\Z", content)
        found = found or (match and (begin, match))
    if not payloads and found is None and WORD not in content:
        raise AssessError("is not a lockstep certificate.")
    if found is None:
        raise Refused("it was cut off or extended: its last line is not the signature.")
    begin, match = found
    key, signature = bytes.fromhex(match[1].decode()), bytes.fromhex(match[2].decode())
    if not is_signed(key, signature, _DOMAIN + begin + content[: match.start()]):
        raise Refused("it was edited: the signature does not match its content.")
    try:
        (word,) = payloads
        payload = json.loads(base64.urlsafe_b64decode(word + b"=" * (-len(word) % 4)))
        datetime.fromisoformat(payload["expires"])
        good = payload["by"] in ("self", "instructor")
    except (ValueError, KeyError, TypeError):
        good = False
    if not good:
        raise Refused("it is signed, but does not contain the facts of a certificate.")
    return Signed(payload=payload, key=key)


def verify(content: bytes, trusted: bytes, *, own: bool, now: datetime | None = None) -> Signed:
    """Refuse a certificate that `trusted` did not sign, or that has expired.

    With `own`, the key is this machine's, and an instructor's certificate is refused.
    """
    found = opened(content)
    if found.key != trusted:
        who = "of this machine" if own else "that you named"
        more = ". Give the instructor's key with --public-key" if own else ""
        raise Refused(
            f"it is signed by another key, {found.by}, not by the key {who}, "
            f"{fingerprint(trusted)}{more}."
        )
    if own and found.payload["by"] != "self":
        raise Refused(
            "it claims to be graded by an instructor, but this machine's own key signed it."
        )
    expires = datetime.fromisoformat(found.payload["expires"])
    if (now or datetime.now(UTC)) > expires:
        raise Refused(f"it expired on {expires:%d %B %Y}.")
    return found
