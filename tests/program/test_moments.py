"""Functions of a program at named moments, on every replica."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.errors import RecipeError
from programs import run, written

BODY = """
def note(text):
    with open(FOLDER / f"rank-{loop.rank}", "a") as file:
        file.write(text + "\\n")

with lockstep.Loop(global_batch=16, exact=True) as loop:
    model = loop.model(Net())
    optimizer = loop.optimizer(torch.optim.AdamW(model.parameters(), lr=1e-2))
    batches = loop.batches(DATA)
    loop.on("MOMENT", FUNCTION)
    def loss(batch):
        x, y = batch
        return F.cross_entropy(model(x), y, reduction="sum"), len(y)
    for epoch in loop.epochs(2):
        for batch in batches:
            loop.step(batch, loss, optimizer)
            noise = torch.rand(1)
        loop.evaluate(DATA[:3], lambda batch: {"ones": torch.ones(len(batch[1]))}, prefix="all_")
    note(str(torch.rand(1)))
"""
FUNCTIONS = {
    "epoch": ("lambda loop: note(f'{loop.epoch} {loop.steps}')", ["0 5", "1 10"]),
    "evaluate": ("lambda loop, values: note(str(values))", ["{'all_ones': 1.0}"] * 2),
    # After the last batch of an epoch, and after the code behind it.
    "save": ("lambda loop: note(str(loop.steps))", ["5", "5", "10", "10"]),
    "end": ("lambda loop: note(loop.summary['status'])", ["finished"]),
}


def program(folder: Path, moment: str, function: str) -> Path:
    body = BODY.replace("MOMENT", moment).replace("FUNCTION", function)
    return written(folder, f"from pathlib import Path\nFOLDER = Path({str(folder)!r})\n{body}")


@pytest.mark.parametrize("moment", FUNCTIONS)
def test_a_function_is_called_at_its_moment_on_every_replica(tmp_path: Path, moment: str):
    function, expected = FUNCTIONS[moment]
    run(program(tmp_path, moment, function), tmp_path / "run", 2)
    notes = [(tmp_path / f"rank-{rank}").read_text().splitlines() for rank in (0, 1)]
    assert notes[0] == notes[1]
    assert [note for note in notes[0] if "tensor" not in note] == expected


def test_a_function_that_draws_random_numbers_does_not_change_the_run(tmp_path: Path):
    drawn = set()
    for number, function in enumerate(("lambda loop: None", "lambda loop: torch.rand(7)")):
        folder = tmp_path / str(number)
        folder.mkdir()
        run(program(folder, "save", function), folder / "run")
        drawn.add((folder / "rank-0").read_text())
    assert len(drawn) == 1


def test_an_unknown_moment_is_refused_by_name(tmp_path: Path):
    with pytest.raises(RecipeError, match=r"'step', ...\): known are epoch, evaluate, save, end"):
        run(program(tmp_path, "step", "print"), tmp_path / "run")
