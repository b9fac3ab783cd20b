"""Find frameworks that do part of the work of data parallelism."""

from __future__ import annotations

import libcst as cst

from lockstep.source.project import Project

FRAMEWORKS = {
    "accelerate": "Accelerate",
    "lightning": "Lightning",
    "pytorch_lightning": "Lightning",
    "lightning_fabric": "Lightning",
    "deepspeed": "DeepSpeed",
    "transformers.Trainer": "Hugging Face Trainer",
    "transformers.Seq2SeqTrainer": "Hugging Face Trainer",
    "ray.train": "Ray Train",
    "horovod": "Horovod",
}
"""Frameworks by the start of their import path."""


def framework(project: Project) -> str | None:
    """Return the framework that a program uses, if any."""
    for script in project.scripts:
        # `transformers.Trainer(...)`, or a class derived from it.
        used = [call.func for call in script.calls]
        for node in script.scopes:
            used += [b.value for b in node.bases] if isinstance(node, cst.ClassDef) else []
        for path in (*script.imports, *(project.name(script, node) or "" for node in used)):
            for start, name in FRAMEWORKS.items():
                if f"{path}.".startswith(f"{start}."):
                    return name
    return None
