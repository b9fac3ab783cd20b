"""Keys that certificates are signed with: an instructor's, or this machine's own."""

from __future__ import annotations

import os
from pathlib import Path

from lockstep.errors import AssessError

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
except ModuleNotFoundError:
    raise AssessError(
        "certificates need cryptography. Install it with: pip install 'lockstep[lab]'"
    ) from None

OWN = Path(".local", "share", "lockstep", "assess-key.pem")
"""In the home folder."""
MOST_BYTES = 100_000


def new_key(path: Path) -> Ed25519PrivateKey:
    """Make a key and write it where only its owner can read it; nothing is overwritten."""
    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise AssessError(
            f"{path} is there already. A key that is lost cannot be made again: name another file."
        ) from None
    except OSError as error:
        raise AssessError(f"{path} cannot be written: {error.strerror}.") from None
    with os.fdopen(file, "wb") as output:
        output.write(text)
    return key


def new_pair(path: Path) -> tuple[Ed25519PrivateKey, Path]:
    """A key, and beside it the half of it that everybody may have."""
    public = path.with_name(path.name + ".pub")
    if public.exists():
        raise AssessError(f"{public} is there already: name another file.")
    key = new_key(path)
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return key, public


def own_key(*, make: bool = True) -> Ed25519PrivateKey | None:
    """This machine's key; made on first use, if asked."""
    path = Path.home() / OWN
    if path.exists():
        return private_key(path)
    return new_key(path) if make else None


def private_key(path: Path) -> Ed25519PrivateKey:
    """A key to sign with, from a PEM file."""
    try:
        key = serialization.load_pem_private_key(_content(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise AssessError(
            f"{path} holds no Ed25519 key to sign with. Make one with: lockstep assess key FILE"
        )
    return key


def public_key(path: Path) -> Ed25519PublicKey:
    """A key to check with, from a PEM file."""
    try:
        key = serialization.load_pem_public_key(_content(path))
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise AssessError(
            f"{path} holds no public Ed25519 key. It is the .pub file that `lockstep assess key` "
            "wrote."
        )
    return key


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES)
    except OSError as error:
        raise AssessError(f"{path} cannot be read: {error.strerror}.") from None


def raw(key: Ed25519PublicKey) -> bytes:
    """Its 32 bytes."""
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def fingerprint(key: bytes) -> str:
    """The beginning of a key, as people compare it."""
    return ":".join(key.hex()[at : at + 4] for at in range(0, 16, 4))


def signed(key: Ed25519PrivateKey, message: bytes) -> bytes:
    """The signature of a message."""
    return key.sign(message)


def is_signed(key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the owner of a key signed a message."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
