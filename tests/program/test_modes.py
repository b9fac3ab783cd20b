"""What a program changes midway survives a resume: frozen layers, modes, running statistics."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.errors import LockstepError, ReplicaDied
from programs import Heard, killed_after, run, written

THAWED = """
with lockstep.Loop(global_batch=16, exact=True, checkpoint_every=2) as loop:
    model = loop.model(Net())
    model.a.requires_grad_(False)
    model.norm.eval()
    optimizer = loop.optimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    batches = loop.batches(DATA)
    def loss(batch):
        x, y = batch
        return F.cross_entropy(model(x), y, reduction="sum"), len(y)
    for epoch in loop.epochs(3):
        if epoch == 1:
            model.a.requires_grad_(True)
            model.norm.train()
        for batch in batches:
            loop.step(batch, loss, optimizer)
        loop.evaluate(DATA, lambda b: {"off": F.cross_entropy(model(b[0]), b[1], reduction="none")})
"""

AVERAGED = """
with lockstep.Loop(global_batch=16, exact=True) as loop:
    torch.manual_seed(0)
    model, slow = loop.model(Net()), loop.model(Net(), "slow")
    optimizer = loop.optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    batches = loop.batches(DATA)
    def loss(batch):
        x, y = batch
        return F.cross_entropy(model(x), y, reduction="sum"), len(y)
    def measure(batch):
        return {"off": F.cross_entropy(slow(batch[0]), batch[1], reduction="none")}
    for epoch in loop.epochs(3):
        for batch in batches:
            loop.step(batch, loss, optimizer)
            with torch.no_grad():
                fast = model.state_dict()
                for name, value in slow.state_dict().items():
                    if value.is_floating_point():
                        value.mul_(0.5).add_(fast[name], alpha=0.5)
                    else:
                        value.copy_(fast[name])
        loop.evaluate(DATA, lambda b: {"x": model(b[0]).sum(1)})
    loop.evaluate(DATA, measure)
    means = slow.norm.running_mean.tolist()
    loop.say(f"mean {sum(means):.9f}")
"""

RELOADED = """
import copy
with lockstep.Loop(global_batch=16, exact=True) as loop:
    model = loop.model(Net())
    optimizer = loop.optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    batches = loop.batches(DATA)
    def loss(batch):
        x, y = batch
        return F.cross_entropy(model(x), y, reduction="sum"), len(y)
    def measure(batch):
        return {"off": F.cross_entropy(model(batch[0]), batch[1], reduction="none")}
    found = []
    for epoch in loop.epochs(3):
        for batch in batches:
            loop.step(batch, loss, optimizer)
        found.append(loop.evaluate(DATA, measure))
        if epoch == 0:
            kept = copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    again = loop.evaluate(DATA, measure)
    loop.say("the same" if again == found[0] else f"{again} is not {found[0]}")
"""


@pytest.mark.parametrize(("step", "then"), [(7, 2), (13, 1)])
def test_layers_that_were_unfrozen_stay_so_after_a_resume(
    step: int, then: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = written(tmp_path, THAWED)
    whole = run(path, tmp_path / "whole")
    revive = killed_after(monkeypatch, step)
    with pytest.raises(ReplicaDied):
        run(path, tmp_path / "killed", 2)
    revive()
    found = run(path, tmp_path / "killed", then, resume=True)
    assert found["weights_sha256"] == whole["weights_sha256"]
    assert found["metrics"] == whole["metrics"]


def test_a_program_may_average_running_statistics_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = written(tmp_path, AVERAGED)
    console = Heard(tmp_path / "said", says=True)
    whole = run(path, tmp_path / "whole", console=console)
    # Statistics of a model that never trained are zero if the average does not reach the shards.
    assert abs(float(console.text.rpartition("mean ")[2].split()[0])) > 1e-3
    often = run(path, tmp_path / "often", 2, checkpoint_every=1)
    assert often["weights_sha256"] == whole["weights_sha256"]
    revive = killed_after(monkeypatch, 8)
    with pytest.raises(ReplicaDied):
        run(path, tmp_path / "killed", 2, checkpoint_every=3)
    revive()
    found = run(path, tmp_path / "killed", resume=True, checkpoint_every=3)
    assert found["weights_sha256"] == whole["weights_sha256"]
    assert found["metrics"] == whole["metrics"]


@pytest.mark.parametrize("replicas", [1, 2])
def test_weights_that_a_program_loads_bring_their_running_statistics(replicas: int, tmp_path: Path):
    console = Heard(tmp_path / "said", says=True)
    run(written(tmp_path, RELOADED), tmp_path / "run", replicas, console=console)
    assert "the same" in console.text


def test_a_group_of_parameters_that_comes_late_is_refused(tmp_path: Path):
    body = THAWED.replace("model.parameters(), lr", "model.b.parameters(), lr").replace(
        "model.norm.train()", 'optimizer.add_param_group({"params": model.a.parameters()})'
    )
    with pytest.raises(LockstepError, match="another group of parameters"):
        run(written(tmp_path, body), tmp_path / "run")
