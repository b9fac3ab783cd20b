"""Places without gradients are told by what their function has around it or upon it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.source.gradients import without_gradient
from lockstep.source.reading import parse


def told(text: str, *, perhaps: bool = False) -> bool:
    script = parse(Path("script.py"), text)
    return without_gradient(script, script.named_last("forward")[0], perhaps=perhaps)


@pytest.mark.parametrize(
    "text",
    [
        "y = net.forward(x)\n",
        "with torch.autocast('cuda'):\n    y = net.forward(x)\n",
        "with torch.set_grad_enabled(phase == 'train'):\n    y = net.forward(x)\n",
        # What is around a function is over when it runs.
        "with torch.no_grad():\n    def f(x):\n        return net.forward(x)\n",
    ],
)
def test_quiet_where_there_may_be_gradients(text: str):
    assert not told(text)


@pytest.mark.parametrize(
    "text",
    [
        "with torch.no_grad():\n    y = net.forward(x)\n",
        "with torch.inference_mode(), scope:\n    y = net.forward(x)\n",
        "@torch.no_grad()\ndef f(x):\n    return net.forward(x)\n",
    ],
)
def test_told_under_no_grad_and_inference_mode(text: str):
    assert told(text)


def test_a_switch_may_be_one():
    assert told("with torch.set_grad_enabled(train):\n    net.forward(x)\n", perhaps=True)
