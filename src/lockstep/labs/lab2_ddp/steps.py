"""The steps that turn the program for one GPU into one for many.

Each step has a page in `pages/`: its title, task and reason, and code before and after.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from lockstep.labs.lab2_ddp import requirements
from lockstep.labs.lab2_ddp.files import page, program
from lockstep.labs.lab2_ddp.requirements import Need

_BLOCK = re.compile(r"^```(before|after)\n(.*?)\n```$", re.M | re.S)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One change to the program."""

    name: str
    title: str
    task: str
    """The instruction."""
    why: str
    before: str
    """Our program before this step."""
    after: str
    """Our program after this step."""
    removes: frozenset[str]
    """The doctor's rules that must find nothing from here on."""
    needs: tuple[Need, ...]
    """Further requirements from here on."""
    optional: bool
    """Whether the learner may skip the step; later steps do not require it."""
    prepared: bool
    """Whether the check prepares the data first, to avoid a race between the ranks."""
    whole: bool
    """Whether the check repeats the first step in one process, which takes twice as long."""


_PLANS: dict[str, tuple[str, tuple[Need, ...]]] = {
    "group": ("", (requirements.two_ranks,)),
    "prepare": ("", (requirements.prepared_once,)),
    "device": ("", (requirements.own_device,)),
    "sampler": ("LS02", ()),
    "epoch": ("LS01", ()),
    "batch": ("LS22", (requirements.same_global_batch,)),
    "wrap": ("LS31", (requirements.is_wrapped,)),
    "norm": ("LS28", (requirements.whole_norm,)),
    "seed": ("LS20", ()),
    "validate": ("LS06 LS07 LS08 LS09", (requirements.each_once, requirements.a_count)),
    "throughput": ("", (requirements.all_images,)),
    "first": ("LS25 LS27", (requirements.one_speaks, requirements.saved)),
    "program": ("", (requirements.leaves,)),
}
"""The rules and the further requirements of each step, in order."""


@cache
def steps() -> tuple[Step, ...]:
    """Return all steps, in order."""
    text, found = program(), []
    for name, (removes, needs) in _PLANS.items():
        written = page(f"{name}.md")
        after = _changed(text, _BLOCK.findall(written))
        title, task, why = _words(_BLOCK.sub("", written))
        found.append(
            Step(
                name=name,
                title=title,
                task=task,
                why=why,
                before=text,
                after=after,
                removes=frozenset(removes.split()),
                needs=needs,
                optional=name == "norm",
                prepared=name == "group",
                whole=name == "program",
            )
        )
        text = after
    return tuple(found)


def _words(page: str) -> tuple[str, str, str]:
    """Return title, task and reason: the heading, the first paragraph, the other paragraphs."""
    head, task, *rest = (" ".join(part.split()) for part in page.strip().split("\n\n"))
    return head.removeprefix("# "), task, "\n\n".join(part for part in rest if part)


def _changed(text: str, blocks: Sequence[tuple[str, str]]) -> str:
    for (_, old), (_, new) in zip(blocks[::2], blocks[1::2], strict=True):
        assert text.count(old) == 1, f"{text.count(old)} times in the program: {old}"
        text = text.replace(old, new)
    return text
