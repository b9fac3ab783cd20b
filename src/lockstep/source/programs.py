"""Find programs: the scripts that people start, each with the modules that it imports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lockstep.source.project import Project
from lockstep.source.script import Script


def programs(scripts: Sequence[Script], *, several_ranks: bool = False) -> list[Project]:
    """Return each script that no other imports, with all modules that it imports.

    With `several_ranks`, they are judged as they run on several ranks (`Live`).
    """
    reader = Project(scripts)
    imported: set[Path] = set()
    needs: dict[Path, list[Script]] = {}
    for script in scripts:
        needs[script.path] = _imports(reader, script)
        imported |= {other.path for other in needs[script.path]}
    found = []
    for script in scripts:
        if script.path not in imported or script in needs[script.path]:
            own = [script, *(o for o in needs[script.path] if o is not script)]
            program = Project(own, several_ranks=several_ranks)
            program.share(reader)
            found.append(program)
    return found


def _imports(reader: Project, script: Script) -> list[Script]:
    """Return the modules that a script imports, directly or not."""
    found: dict[Path, Script] = {}
    waiting = [script]
    while waiting:
        here = waiting.pop()
        for name in here.imports:
            for path in (name, name.rpartition(".")[0]):
                module = reader.module(here, path) if path.strip(".") else None
                if module is not None and module.path not in found:
                    found[module.path] = module
                    waiting.append(module)
    return list(found.values())
