"""Check that the recorder calls its listeners, in their order, and that `place` skips them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.probes.run_script import ScriptRun, run
from lockstep.probes.settings import Settings
from lockstep.probes.trace import Event, read

LISTENER = """
import torch
from functools import wraps


def install(recorder):
    def noting(name, answer=None):
        def listen(*given):
            recorder.note("called", name=name, given=[type(one).__name__ for one in given])
            return answer
        return listen

    recorder.on_loader.append(noting("loader"))
    recorder.on_pass.append(noting("pass"))
    recorder.ends_pass.append(lambda state: state.turn == 1 and state.count == 1)
    recorder.on_batch.append(lambda data, batch: noting("batch")(batch) or data + 1)
    recorder.on_pass_end.append(noting("pass end"))
    recorder.on_backward.append(
        lambda: noting(f"backward of {[float(loss) for loss in recorder.losses]}")()
    )
    recorder.after_backward.append(noting("after backward"))
    recorder.on_optimizer.append(noting("optimizer"))
    recorder.on_step.append(noting("step"))
    recorder.on_stepped.append(noting("stepped"))
    recorder.on_end.append(noting("end"))
    original = torch.nn.Module.__call__

    @wraps(original)
    def called(*args, **kwargs):
        print("call", 1)
        return original(*args, **kwargs)

    torch.nn.Module.__call__ = called
"""
SCRIPT = """
import torch
from torch.utils.data import DataLoader

loader = DataLoader(torch.zeros(4, 1), batch_size=2)
model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.ones_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
for epoch in range(2):
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
"""


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    (tmp_path / "listener.py").write_text(LISTENER)
    script, notes = tmp_path / "train.py", tmp_path / "notes"
    script.write_text(SCRIPT)
    notes.mkdir()
    source = Path(__file__).parents[2] / "src"
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{source}")
    settings = Settings(folder=str(notes), early=("listener",))
    outcome = run(ScriptRun(script=script, ranks=0, settings=settings, fork=False))
    assert outcome.how == "finished", outcome.logs[0].read_text()
    return read(notes, outcome, alone=True).ranks[0].events


def test_listeners_hear_of_everything_in_its_order(events: list[Event]):
    batch = [
        "batch",
        # Two samples of 0, plus the 1 that a listener adds to each.
        "backward of [2.0]",
        "after backward",
        "step",
        "stepped",
    ]
    first = ["pass", *batch, *batch, "pass end"]
    # A listener ends the second pass after one batch.
    second = ["pass", *batch, "pass end"]
    called = [event for event in events if event["kind"] == "called"]
    names = [event["name"] for event in called]
    assert names == ["loader", "optimizer", *first, *second, "end"]
    given = {event["name"]: event["given"] for event in called}
    assert given["loader"] == ["DataLoader"]
    assert given["pass"] == ["DataLoader", "LoaderPass"]
    assert given["stepped"] == given["step"] == given["optimizer"] == ["SGD"]


def test_places_are_lines_of_the_script_and_not_of_a_listener(events: list[Event]):
    places = [event["place"] for event in events if event["kind"] == "said"]
    line = SCRIPT.splitlines().index("        model(x).sum().backward()") + 1
    assert [Path(place).name for place in places] == [f"train.py:{line}"] * 3
