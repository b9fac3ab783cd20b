"""Every rank downloads: N processes fetch and unpack into one folder at the same time."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lockstep.doctor.findings import Found
from lockstep.source.every_rank import on_every_rank
from lockstep.source.training import Training
from lockstep.source.tree import argument

_DATA = re.compile(r"(torchvision|torchaudio)\.datasets\.\w+")
_FETCHES = {
    "urllib.request.urlretrieve", "urllib.request.urlopen", "gdown.download", "wget.download",
    "requests.get",
}  # fmt: skip


def look(training: Training) -> Iterator[Found]:
    """Find downloads that no rank waits for; one for each function."""
    seen = set()
    for script in training.project.scripts:
        for call in script.calls:
            name = training.project.name(script, call.func) or ""
            if _DATA.fullmatch(name):
                given = argument(call, "download")
                values = training.project.constants(script, given) if given is not None else []
                if True not in values:
                    continue
            elif name not in _FETCHES:
                continue
            function = script.function_of(call)
            if function not in seen and on_every_rank(training, script, call, once=True):
                seen.add(function)
                reason = "every rank downloads into the same folder at the same time"
                yield Found(script, call, reason, certain=False)
