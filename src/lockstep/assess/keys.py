"""Keys that sign certificates: an instructor's, or this machine's."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
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
"""The path of this machine's key in the home folder."""
MOST_BYTES = 100_000


def new_key(path: Path) -> Ed25519PrivateKey:
    """Make a key and write it so that only its owner can read it; overwrite nothing."""
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
            f"{path} already exists. A lost key cannot be restored, so name another file."
        ) from None
    except OSError as error:
        raise AssessError(f"{path} cannot be written: {error.strerror}.") from None
    with os.fdopen(file, "wb") as output:
        output.write(text)
    return key


def new_pair(path: Path) -> tuple[Ed25519PrivateKey, Path]:
    """Make a key, and write its public half beside it."""
    public = path.with_name(path.name + ".pub")
    if public.exists():
        raise AssessError(f"{public} already exists: name another file.")
    key = new_key(path)
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return key, public


def own_key(*, make: bool = True) -> Ed25519PrivateKey | None:
    """Return this machine's key; with `make`, create it on first use."""
    path = Path.home() / OWN
    if path.exists():
        return private_key(path)
    return new_key(path) if make else None


def private_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key from a PEM file."""
    key = _read(path, partial(serialization.load_pem_private_key, password=None))
    if not isinstance(key, Ed25519PrivateKey):
        raise AssessError(
            f"{path} holds no private Ed25519 key. Make one with: lockstep assess key FILE"
        )
    return key


def public_key(path: Path) -> Ed25519PublicKey:
    """Read a public key from a PEM file."""
    key = _read(path, serialization.load_pem_public_key)
    if not isinstance(key, Ed25519PublicKey):
        raise AssessError(
            f"{path} holds no public Ed25519 key. Name the .pub file that `lockstep assess key` "
            "wrote."
        )
    return key


def _read(path: Path, load: Callable[[bytes], object]) -> object:
    """Return the key in a file, or None if there is none."""
    try:
        with path.open("rb") as file:
            return load(file.read(MOST_BYTES))
    except OSError as error:
        raise AssessError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None


def raw(key: Ed25519PublicKey) -> bytes:
    """Return the 32 bytes of a public key."""
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def fingerprint(key: bytes) -> str:
    """Return the beginning of a key in a form that people can compare."""
    return ":".join(key.hex()[at : at + 4] for at in range(0, 16, 4))


def is_signed(key: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether the owner of a key signed a message."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
