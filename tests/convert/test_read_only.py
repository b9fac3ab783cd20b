"""Convert scripts by reading alone, and look at what is written."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest

from lockstep.convert import Options, read_only
from lockstep.errors import Already, ConvertError
from lockstep.source.reading import parse, read_script

CASES = Path(__file__).parent.parent / "cases" / "convert"
SCRIPTS = sorted(
    [*CASES.glob("scripts/*.py"), *CASES.glob("scripts/*.ipynb"), CASES / "scripts/cifar/main.py"]
)
PLAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=16, shuffle=True)  # all of it
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch", epoch)
torch.save(model.state_dict(), "model.pt")
"""


def of(text: str, *, scale_batch: bool = False, sync_batch_norm: bool = True) -> dict[str, str]:
    """The new files of a script."""
    options = Options(scale_batch=scale_batch, sync_batch_norm=sync_batch_norm)
    found = read_only(parse(Path("train.py"), text), options)
    return {path.name: text for path, text in found.files.items()}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_a_script_is_converted_once(path: Path, tmp_path: Path) -> None:
    found = read_only(read_script(path), Options())
    assert found.changes
    assert "lockstep" not in found.text
    shutil.copytree(path.parent, tmp_path, dirs_exist_ok=True)
    for old, text in found.files.items():
        ast.parse(text)
        tmp_path.joinpath(old.relative_to(path.parent)).with_suffix(".py").write_text(text)
    with pytest.raises(Already, match="distributed already"):
        read_only(read_script(tmp_path.joinpath(path.name).with_suffix(".py")), Options())


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_only_the_lines_that_need_it_change(path: Path) -> None:
    script = read_script(path)
    found = read_only(script, Options())
    kept = [line.strip() for line in found.text.splitlines()]
    lines = [line.strip() for line in script.text.splitlines() if line.strip()]
    changed = [line for line in lines if line not in kept]
    assert len(changed) <= 14
    assert not [line for line in changed if line.startswith("#")]
    assert len(kept) <= len(script.text.splitlines()) + 10


def test_the_result_is_what_a_careful_engineer_would_write() -> None:
    files = of(PLAIN)
    assert set(files) == {"train.py", "parallel.py"}
    assert files["train.py"] == "from parallel import RANK, ddp, divided\n" + PLAIN.replace(
        "DataLoader(data, batch_size=16, shuffle=True)",
        "divided(DataLoader(data, batch_size=16, shuffle=True))",
    ).replace("model(x)", "ddp(model)(x)").replace("torch.save(", "if RANK == 0:\n    torch.save(")


def test_names_that_the_script_uses_are_left_to_it() -> None:
    text = of(PLAIN.replace("model = nn", "RANK = 3\nmodel = nn"))["train.py"]
    assert "\nRANK = 3\n" in text
    assert "RANK as RANK_2" in text
    assert "if RANK_2 == 0:" in text


def test_a_module_that_the_script_imports_keeps_its_name() -> None:
    files = of(f"import parallel\n{PLAIN}")
    assert set(files) == {"train.py", "data_parallel.py"}


def test_a_batch_that_grows_has_a_fitted_rate() -> None:
    text = of(PLAIN, scale_batch=True)["train.py"]
    assert "batch_size=16, " in text
    assert "lr=0.1 * WORLD_SIZE)" in text
    adam = of(PLAIN.replace("SGD", "AdamW"), scale_batch=True)["train.py"]
    assert "lr=0.1 * WORLD_SIZE ** 0.5)" in adam


def test_a_sum_is_scaled_and_a_mean_is_not() -> None:
    summed = PLAIN.replace("mse_loss(model(x), y)", 'mse_loss(model(x), y, reduction="sum")')
    assert "(loss * WORLD_SIZE).backward()" in of(summed)["train.py"]
    divided = 'mse_loss(model(x), y, reduction="sum") / len(x)'
    assert "loss.backward()" in of(PLAIN.replace("mse_loss(model(x), y)", divided))["train.py"]


def test_half_a_sum_is_refused() -> None:
    both = 'mse_loss(model(x), y, reduction="sum") + model(x).mean()'
    with pytest.raises(ConvertError, match="no single factor keeps its gradient"):
        of(PLAIN.replace("mse_loss(model(x), y)", both))


def test_batch_norm_sees_the_whole_batch_unless_it_should_not() -> None:
    normed = PLAIN.replace("nn.Linear(4, 1)", "nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))")
    assert "SyncBatchNorm" in of(normed)["parallel.py"]
    assert "SyncBatchNorm" not in of(normed, sync_batch_norm=False)["parallel.py"]


def test_batch_norm_of_a_library_is_synchronised() -> None:
    text = PLAIN.replace("nn.Linear(4, 1)", "models.resnet18()")
    assert "SyncBatchNorm" in of(f"from torchvision import models\n{text}")["parallel.py"]


def test_a_program_that_does_not_train_is_refused() -> None:
    with pytest.raises(ConvertError, match="backward"):
        of(PLAIN.replace("loss.backward()", "pass"))


def test_line_ends_and_tabs_stay() -> None:
    text = of(PLAIN.replace("    ", "\t").replace("\n", "\r\n"))["train.py"]
    assert "\n" not in text.replace("\r\n", "")
    assert "\r\n\t\tloss = nn.functional.mse_loss(ddp(model)(x), y)" in text


def test_a_loss_that_is_shown_is_that_of_all_processes() -> None:
    text = of(PLAIN.replace('"epoch", epoch', "loss.item()"))["train.py"]
    assert "print(all_mean(loss).item())" in text


def test_imports_of_the_future_and_texts_at_the_top_stay_first() -> None:
    head = '#!/usr/bin/env python\n"""Train."""\n\nfrom __future__ import annotations\n\n'
    text = of(head + PLAIN)["train.py"]
    assert text.startswith(head)
    ast.parse(text)


def test_the_understood_parts_are_listed_with_their_lines() -> None:
    script = read_script(CASES / "scripts" / "throughput.py")
    said = {(note.line, note.text) for note in read_only(script, Options()).understood}
    assert (75, "loss loss, over the batch: mean") in said
    assert any(text == "training data" for _, text in said)
    assert any(text == "step of an optimizer" for _, text in said)


def test_a_patch_holds_every_file_that_changes() -> None:
    found = read_only(parse(Path("train.py"), PLAIN), Options())
    files = re.findall(r"^\+\+\+ b/(.+)$", found.diff(new=True), re.MULTILINE)
    assert files == ["train.py", "parallel.py"]
    assert "parallel.py" not in re.findall(r"^\+\+\+ b/(.+)$", found.diff(), re.MULTILINE)
