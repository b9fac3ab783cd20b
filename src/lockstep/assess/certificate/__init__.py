"""The certificate: one drawing, painted as SVG and as PDF, and signed."""

from __future__ import annotations

import platform
import secrets
import unicodedata
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.assess.grade import Grade
from lockstep.assess.starter import Task
from lockstep.engine.run.atomic_write import replace_file
from lockstep.errors import AssessError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

VALID = timedelta(days=2 * 365)
LONGEST = 80


def payload_of(
    grade: Grade, task: Task, name: str, *, by_instructor: bool, now: datetime | None = None
) -> dict[str, Any]:
    """Return the facts on a certificate."""
    assert grade.passed, "a certificate for a grading that failed"
    now = (now or datetime.now(UTC)).replace(microsecond=0)
    spent = task.spent(now.timestamp())
    return {
        "format": 1,
        "serial": secrets.token_hex(6),
        "name": checked_name(name),
        "by": "instructor" if by_instructor else "self",
        "graded": now.isoformat(),
        "expires": (now + VALID).isoformat(),
        "machine": machine(grade.on_gpus, grade.replicas),
        "data": grade.exam.data,
        "replicas": grade.replicas,
        "score": grade.score,
        "of": len(grade.verdicts),
        "accuracy": round(grade.accuracy or 0.0, 4),
        "target": grade.exam.target,
        "gain": round(grade.gain or 0.0, 2),
        "minutes": round(spent),
        "limit": task.minutes,
        "in_time": spent <= task.minutes,
        "lockstep": version("lockstep"),
    }


def write(folder: Path, payload: dict[str, Any], key: Ed25519PrivateKey) -> list[Path]:
    """Write certificate.svg and certificate.pdf, signed."""
    from lockstep.assess.certificate.layout import drawing
    from lockstep.assess.certificate.pdf import pdf
    from lockstep.assess.certificate.svg import svg
    from lockstep.assess.keys import fingerprint, raw
    from lockstep.assess.signature import payload_word, sign

    shapes = drawing(payload, fingerprint(raw(key.public_key())))
    word = payload_word(payload)
    written = []
    # Make both before writing either: no font may have the letters of the name.
    for form, content in [("svg", svg(shapes, word)), ("pdf", pdf(shapes, word))]:
        written.append((folder / f"certificate.{form}", sign(content, form, key)))
    for path, content in written:
        replace_file(path, content)
    return [path for path, _ in written]


def checked_name(name: str) -> str:
    """Return a name as a certificate shows it; refuse a name that it cannot show.

    >>> checked_name("  Ada   Lovelace ")
    'Ada Lovelace'
    """
    found = " ".join(unicodedata.normalize("NFC", name).split())
    bad = [c for c in found if unicodedata.category(c) in ("Cc", "Cs", "Co", "Cn")]
    if not found:
        raise AssessError("a certificate needs a name: give one with --name 'Ada Lovelace'.")
    if bad or len(found) > LONGEST:
        raise AssessError(
            f"--name {name!r} does not fit on a certificate: use at most {LONGEST} letters "
            "and no control characters."
        )
    return found


def machine(on_gpus: bool, replicas: int) -> str:
    """Describe the machine of the grading."""
    if on_gpus:
        import torch

        return f"{replicas} x {torch.cuda.get_device_name(0)}"
    return f"{replicas} CPU threads, {platform.machine()}, {platform.system()}"
