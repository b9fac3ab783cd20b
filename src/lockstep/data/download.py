"""Fetch a file over HTTP, check its checksum, and put it in place only when it is complete."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path

from lockstep.errors import DataError

Progress = Callable[[int, int | None], None]
"""Called with the bytes that have arrived and the total, if the server sent it."""

TIMEOUT_SECONDS = 10.0
CHUNK_BYTES = 1 << 18


def fetch(url: str, target: Path, checksum: str, progress: Progress | None = None) -> Path:
    """Download `url` to `target` if its content has `checksum` ("md5:..." or "sha256:...").

    Replicas on one machine may fetch the same file at once. Each writes beside the target under
    another name, and the last to finish replaces the identical files of the others.
    """
    algorithm, _, expected = checksum.partition(":")
    if algorithm not in ("md5", "sha256"):
        raise DataError(f"checksum {checksum!r} is neither 'md5:...' nor 'sha256:...'.")
    # Files of tempfile have mode 0600, which would lock other users out of a shared folder.
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        found = _stream(url, partial, algorithm, progress)
        if found != expected:
            raise DataError(
                f"{url} arrived with {algorithm} {found} instead of {expected}: the file there has "
                "changed, or something between here and there replaced it."
            )
        os.replace(partial, target)
    except urllib.error.HTTPError as error:
        error.close()
        raise DataError(f"{url} answered {error.code} {error.reason}.") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DataError(f"{url} could not be downloaded to {target}: {error}.") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
    return target


def _stream(url: str, target: Path, algorithm: str, progress: Progress | None) -> str:
    """Copy `url` into `target` and return the digest of what was copied."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as reply, target.open("xb") as file:
        length = reply.headers.get("Content-Length")
        total = int(length) if length is not None else None
        done = 0
        while chunk := reply.read(CHUNK_BYTES):
            file.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            if progress is not None:
                progress(done, total)
    if total is not None and done < total:
        raise DataError(f"{url} broke off after {done:,} of {total:,} bytes. Run again.")
    return digest.hexdigest()
