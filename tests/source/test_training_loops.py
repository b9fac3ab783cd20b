"""What one turn of a loop does, and where gradients are accumulated."""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from lockstep.source.accumulation import windows
from lockstep.source.loss import feeding, loss_of
from lockstep.source.project import Project
from lockstep.source.reading import parse
from lockstep.source.training import Training
from lockstep.source.training_loops import acts


def training(text: str) -> Training:
    return Training(Project([parse(Path("train.py"), text)]))


def kinds(text: str) -> list[str]:
    here = training(text)
    script = here.project.scripts[0]
    return [act.kind for act in acts(here, script, script.tree)]


def test_acts_come_in_the_order_of_the_program_also_through_functions():
    text = """
def update():
    clip_grad_norm_(parameters, 1.0)
    optimizer.step()
loss.backward()
update()
scheduler.step()
optimizer.zero_grad()
"""
    assert kinds(text) == ["backward", "clip", "step", "zero_grad"]


def test_a_function_that_calls_itself_comes_to_an_end():
    assert kinds("def f():\n    loss.backward()\n    f()\nf()\n") == ["backward"]


def test_branches_of_one_if_are_not_beside_each_other():
    here = training("if amp:\n    loss.backward()\nelse:\n    loss.backward()\noptimizer.step()\n")
    script = here.project.scripts[0]
    first, second, step = acts(here, script, script.tree)
    assert not first.beside(second)
    assert first.beside(step)
    assert second.beside(step)


def found(text: str) -> list[str | None]:
    return [w.steps and w.at.code(w.steps) for w in windows(training(text))]


def test_a_step_every_k_turns_is_a_window():
    loop = "for i, x in enumerate(loader):\n    loss.backward()\n"
    assert found(loop + "    if (i + 1) % K == 0:\n        optimizer.step()\n") == ["K"]
    assert found(loop + "    ready = i % K == 0\n    if ready:\n        optimizer.step()\n") == [
        "K"
    ]
    assert found(loop + "    if i % K:\n        continue\n    optimizer.step()\n") == ["K"]
    inner = (
        "for x in loader:\n    for i in range(K):\n        loss.backward()\n    optimizer.step()\n"
    )
    assert found(inner) == ["K"]


def test_a_step_for_every_backward_is_no_window():
    loop = "for i, x in enumerate(loader):\n    loss.backward()\n"
    assert found(loop + "    optimizer.step()\n") == []
    assert found(loop + "    if isfinite(norm):\n        optimizer.step()\n") == []
    attack = "for x in loader:\n    for i in range(K):\n        loss.backward()\n"
    after = "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n"
    assert found(attack + after) == []
    both = "    if i % K == 0:\n        other.backward()\n        optimizer_g.step()\n"
    assert found(loop + "    optimizer_d.step()\n" + both) == []


def test_the_inputs_of_a_loss_are_found_behind_names_and_functions():
    text = """
def compute(x):
    return x.pow(2).mean()
loss = compute(x)
scaler.scale(loss).backward()
"""
    here = training(text)
    script = here.project.scripts[0]
    backward = next(c for c in script.calls if script.code(c).endswith("backward()"))
    loss = loss_of(backward)
    assert isinstance(loss, cst.Name)
    assert "x.pow(2).mean()" in {where.code(node) for where, node in feeding(here, script, loss)}


def test_a_module_that_is_moved_as_it_is_made_is_still_known():
    net = "class Net(Module):\n    def forward(self, x):\n        optimizer.step()\n"
    assert kinds(net + "model = Net().to(device)\nmodel(x)\n") == ["step"]
    assert kinds(net + "Net()(x)\n") == ["step"]
