"""One program may have several loops, one after the other, and may keep them in other modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.engine.program.record import ProgramRecord
from lockstep.engine.run.run_folder import RunFolder
from lockstep.errors import FolderError, ReplicaDied
from lockstep.source.own_loop import is_program
from programs import HEAD, killed_after, run, written

FOLDS = """
for fold in range(3):
    with lockstep.Loop(global_batch=16, exact=True, seed=fold, checkpoint_every=2) as loop:
        model = loop.model(Net())
        optimizer = loop.optimizer(torch.optim.AdamW(model.parameters(), lr=1e-2))
        batches = loop.batches([x for n, x in enumerate(DATA) if n % 3 != fold])
        def loss(batch):
            x, y = batch
            return F.cross_entropy(model(x), y, reduction="sum"), len(y)
        for epoch in loop.epochs(2):
            for batch in batches:
                loop.step(batch, loss, optimizer)
        held_out = [x for n, x in enumerate(DATA) if n % 3 == fold]
        loop.evaluate(held_out, lambda b: {"right": (model(b[0]).argmax(1) == b[1]).float()})
"""


def ends(out: Path) -> list[tuple[str, float]]:
    """Return the weights and the accuracy of each loop of a run."""
    folders = [out, out / "loop-2", out / "loop-3"]
    every = [RunFolder(folder).summary() for folder in folders]
    return [(one["weights_sha256"], one["metrics"]["right"]) for one in every]


def test_each_loop_of_a_program_has_a_folder_and_the_bits_of_one_replica(tmp_path: Path):
    path = written(tmp_path, FOLDS)
    found = run(path, tmp_path / "one")
    assert found["loops"] == 3
    run(path, tmp_path / "two", 2)
    assert ends(tmp_path / "one") == ends(tmp_path / "two")
    assert len({weights for weights, _ in ends(tmp_path / "one")}) == 3


def test_a_program_killed_in_its_second_loop_goes_on_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = written(tmp_path, FOLDS)
    run(path, tmp_path / "whole")
    out = tmp_path / "killed"
    plain = ProgramRecord.after_body

    def only_later(self: ProgramRecord, **options: object) -> None:
        if self.folder.path.name == "loop-2":
            dying(self, **options)
        else:
            plain(self, **options)

    revive = killed_after(monkeypatch, 5)
    dying = ProgramRecord.after_body
    monkeypatch.setattr(ProgramRecord, "after_body", only_later)
    with pytest.raises(ReplicaDied):
        run(path, out, 2)
    revive()
    assert not (out / "loop-3").exists()
    run(path, out, 1, resume=True)
    assert ends(out) == ends(tmp_path / "whole")


def test_a_finished_program_is_not_run_again(tmp_path: Path):
    path = written(tmp_path, FOLDS.replace("range(3)", "range(1)"))
    run(path, tmp_path / "run")
    with pytest.raises(FolderError, match="finished"):
        run(path, tmp_path / "run", resume=True)


def test_a_loop_in_an_imported_module_is_found(tmp_path: Path):
    main = tmp_path / "main.py"
    main.write_text("from work.training import fit\n\nif __name__ == '__main__':\n    fit()\n")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "__init__.py").write_text("")
    (tmp_path / "work" / "training.py").write_text("from work import inner\nfit = inner.fit\n")
    body = "\n".join("    " + line for line in FOLDS.replace("range(3)", "range(1)").splitlines())
    (tmp_path / "work" / "inner.py").write_text(f"{HEAD}\ndef fit():\n{body}\n")
    assert is_program(str(main))
    assert run(main, tmp_path / "run", 2)["loops"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "import helper\nrecipe = helper.make()\n",
        "import helper_without\n",
        "import missing\n",
        "from .helper import (\n",
    ],
)
def test_other_files_are_no_programs(text: str, tmp_path: Path):
    (tmp_path / "helper.py").write_text("import lockstep\nlockstep.Loop(global_batch=4)\n")
    (tmp_path / "helper_without.py").write_text("import main\n")
    main = tmp_path / "main.py"
    main.write_text(text)
    assert not is_program(str(main))
