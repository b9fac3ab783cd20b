"""The steps that turn the program for one GPU into one for many.

Each step has a page in `pages/`: its title, task and reason, and code before and after.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from lockstep.labs.lab2_ddp import requirements
from lockstep.labs.lab2_ddp.requirements import Need
from lockstep.labs.lab2_ddp.texts import page, program

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
    removes: frozenset[str] = frozenset()
    """The doctor's rules that must find nothing from here on."""
    needs: tuple[Need, ...] = ()
    """Further requirements from here on."""
    optional: bool = False
    """Whether the learner may skip the step; later steps do not require it."""
    prepared: bool = False
    """Whether the check prepares the data first, to avoid a race between the ranks."""
    whole: bool = False
    """Whether the check repeats the first step in one process, which takes twice as long."""


@dataclass(frozen=True)
class _Plan:
    name: str
    removes: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    optional: bool = False


_PLANS = (
    _Plan("group", needs=(requirements.two_ranks,)),
    _Plan("prepare", needs=(requirements.prepared_once,)),
    _Plan("device", needs=(requirements.own_device,)),
    _Plan("sampler", ("LS02",)),
    _Plan("epoch", ("LS01",)),
    _Plan("batch", ("LS22",), (requirements.same_global_batch,)),
    _Plan("wrap", ("LS31",), (requirements.is_wrapped,)),
    _Plan("norm", ("LS28",), (requirements.whole_norm,), optional=True),
    _Plan("seed", ("LS20",)),
    _Plan(
        "validate", ("LS06", "LS07", "LS08", "LS09"), (requirements.each_once, requirements.a_count)
    ),
    _Plan("throughput", needs=(requirements.all_images,)),
    _Plan("first", ("LS25", "LS27"), (requirements.one_speaks, requirements.saved)),
    _Plan("program", needs=(requirements.leaves,)),
)


@cache
def steps() -> tuple[Step, ...]:
    """Return all steps, in order."""
    text, found = program(), []
    for number, plan in enumerate(_PLANS):
        written = page(f"{plan.name}.md")
        after = _changed(text, _BLOCK.findall(written))
        title, task, why = _words(_BLOCK.sub("", written))
        found.append(
            Step(
                name=plan.name,
                title=title,
                task=task,
                why=why,
                before=text,
                after=after,
                removes=frozenset(plan.removes),
                needs=plan.needs,
                optional=plan.optional,
                prepared=number == 0,
                whole=number == len(_PLANS) - 1,
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
