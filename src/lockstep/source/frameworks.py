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
        for scope in script.scopes.values():
            for binding in (b for bindings in scope.bindings.values() for b in bindings):
                if binding.kind == "import" and (name := _framework(binding.path)):
                    return name
        # `transformers.Trainer(...)`, or a class derived from it.
        used = [call.func for call in script.calls]
        for node in script.scopes:
            used += [b.value for b in node.bases] if isinstance(node, cst.ClassDef) else []
        for node in used:
            path = project.name(script, node)
            if path is not None and (name := _framework(path)):
                return name
    return None


def _framework(path: str) -> str | None:
    return next((name for start, name in FRAMEWORKS.items() if _begins(path, start)), None)


def _begins(path: str, start: str) -> bool:
    return path == start or path.startswith(start + ".")
