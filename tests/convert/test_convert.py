"""Convert scripts for one GPU, in the styles that people use."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import torch

from lockstep.convert import Options, convert
from lockstep.convert.draft import Draft
from lockstep.errors import Already, ConvertError
from lockstep.source.reading import parse, read_script

CASES = Path(__file__).parent.parent / "cases" / "convert"
SCRIPTS = sorted(
    [*CASES.glob("scripts/*.py"), *CASES.glob("scripts/*.ipynb"), CASES / "scripts/cifar/main.py"]
)


def of(text: str, **options: bool) -> str:
    """A script from its text, converted."""
    return convert(parse(Path("train.py"), text), Options(**options)).text


STREAM = """\
class Lines(torch.utils.data.IterableDataset):
    def __iter__(self):
        for _ in range(7):
            yield torch.randn(4), torch.randn(1)


data = Lines()
"""
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


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_a_script_is_converted_once(path: Path):
    script = read_script(path)
    found = convert(script)
    ast.parse(found.text)
    assert found.changes
    assert "lockstep" not in found.text
    with pytest.raises(Already, match="distributed already"):
        convert(parse(path, found.text))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_only_the_lines_that_need_it_change(path: Path):
    script = read_script(path)
    kept = [line.strip() for line in convert(script).text.splitlines()]
    lines = [line.strip() for line in script.text.splitlines() if line.strip()]
    changed = [line for line in lines if line not in kept]
    assert len(changed) <= 14
    assert not [line for line in changed if line.startswith("#")]


def test_the_result_is_what_a_careful_engineer_would_write():
    assert of(PLAIN) == PLAIN.replace(
        "TensorDataset\n\n",
        "TensorDataset\n"
        "import os\n"
        "import torch.distributed as dist\n"
        "from torch.nn.parallel import DistributedDataParallel\n"
        "from torch.utils.data.distributed import DistributedSampler\n"
        "\n"
        "# Set by torchrun; without it, this is the only process.\n"
        'RANK = int(os.environ.get("RANK", 0))\n'
        'LOCAL_RANK = int(os.environ.get("LOCAL_RANK", 0))\n'
        'WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))\n'
        "\n"
        "\n"
        "def bare(model):\n"
        '    """Return the model without DDP around it."""\n'
        "    return model.module if isinstance(model, DistributedDataParallel) else model\n"
        "\n\n"
        "if WORLD_SIZE > 1:\n"
        "    if torch.cuda.is_available():\n"
        "        torch.cuda.set_device(LOCAL_RANK)\n"
        "    dist.init_process_group()\n"
        "    torch.manual_seed(0)\n",
    ).replace(
        "loader = DataLoader(data, batch_size=16, shuffle=True)  # all of it\n",
        'assert 16 % WORLD_SIZE == 0, "the batch must divide evenly by the processes"\n'
        "loader = DataLoader(data, batch_size=16 // WORLD_SIZE, shuffle=WORLD_SIZE == 1,\n"
        "                    sampler=DistributedSampler(data) if WORLD_SIZE > 1 else None)"
        "  # all of it\n",
    ).replace(
        "model = nn.Linear(4, 1)\n",
        "model = nn.Linear(4, 1)\nif WORLD_SIZE > 1:\n    model = DistributedDataParallel(model)\n",
    ).replace(
        "for epoch in range(2):\n",
        "if WORLD_SIZE > 1:\n"
        "    torch.manual_seed(torch.initial_seed() + RANK)\n"
        "for epoch in range(2):\n"
        "    if WORLD_SIZE > 1:\n"
        "        loader.sampler.set_epoch(epoch)\n",
    ).replace(
        '    print("epoch", epoch)\n', '    if RANK == 0:\n        print("epoch", epoch)\n'
    ).replace(
        'torch.save(model.state_dict(), "model.pt")\n',
        "if RANK == 0:\n"
        '    torch.save(bare(model).state_dict(), "model.pt")\n'
        "if WORLD_SIZE > 1:\n"
        "    dist.barrier()\n"
        "    dist.destroy_process_group()\n",
    )


def test_names_that_the_script_uses_are_left_to_it():
    text = of(PLAIN.replace("model = nn", "RANK = 3\nmodel = nn"))
    assert "\nRANK = 3\n" in text
    assert "if RANK_2 == 0:" in text


def test_a_batch_that_grows_has_a_fitted_rate():
    text = of(PLAIN, scale_batch=True)
    assert "batch_size=16, " in text
    assert "lr=0.1 * WORLD_SIZE)" in text
    adam = of(PLAIN.replace("SGD", "AdamW"), scale_batch=True)
    assert "lr=0.1 * WORLD_SIZE ** 0.5)" in adam


def test_a_sum_is_scaled_and_a_mean_is_not():
    text = of(PLAIN.replace("mse_loss(model(x), y)", 'mse_loss(model(x), y, reduction="sum")'))
    assert "(loss * WORLD_SIZE).backward()" in text
    divided = 'mse_loss(model(x), y, reduction="sum") / len(x)'
    assert "loss.backward()" in of(PLAIN.replace("mse_loss(model(x), y)", divided))


def test_half_a_sum_is_refused():
    both = 'mse_loss(model(x), y, reduction="sum") + model(x).mean()'
    with pytest.raises(ConvertError, match="no single factor keeps its gradient"):
        of(PLAIN.replace("mse_loss(model(x), y)", both))


def test_batch_norm_sees_the_whole_batch_unless_it_should_not():
    normed = PLAIN.replace("nn.Linear(4, 1)", "nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))")
    assert "convert_sync_batchnorm(model)" in of(normed)
    assert "SyncBatchNorm" not in of(normed, sync_batch_norm=False)
    assert "SyncBatchNorm" not in of(PLAIN)


def test_old_checkpoints_of_data_parallel_still_load():
    text = of(
        PLAIN.replace(
            "optimizer =",
            "model = nn.DataParallel(model)\n"
            'model.load_state_dict(torch.load("old.pt"))\noptimizer =',
        )
    )
    assert "DataParallel(model)\n" not in text.replace("DistributedDataParallel(model)\n", "")
    assert re.search(r'load_state_dict\(\{key.removeprefix\("module."\)', text)
    assert 'torch.load("old.pt", map_location="cpu")' in text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("shuffle=True", "batch_sampler=mine", "has a batch_sampler"),
        ("batch_size=16, ", "", "batches of one sample"),
        ("model.parameters()", "weights", "found no model"),
    ],
)
def test_code_that_cannot_be_followed_is_refused_with_its_place(old: str, new: str, message: str):
    with pytest.raises(ConvertError, match=message):
        of(PLAIN.replace(old, new))


def test_several_texts_at_one_place_keep_their_order():
    script = parse(Path("x.py"), 'a = 1\nb = """\n  text\n"""\nc = 3\n')
    draft = Draft(script)
    first, second, last = script.tree.body
    draft.after(first, "one")
    draft.before(second, "two")
    draft.under("if x:", [second])
    draft.after(last, "end")
    assert draft.text() == 'a = 1\none\ntwo\nif x:\n    b = """\n  text\n"""\nc = 3\nend\n'


def test_line_ends_and_tabs_stay():
    text = of(PLAIN.replace("    ", "\t").replace("\n", "\r\n"))
    assert "\n" not in text.replace("\r\n", "")
    assert "\r\n\tif WORLD_SIZE > 1:\r\n\t\tloader.sampler" in text


def test_a_loss_that_is_shown_is_that_of_all_processes():
    text = of(PLAIN.replace('"epoch", epoch', "loss.item()"))
    assert "    loss = all_sum(loss) / WORLD_SIZE\n    if RANK == 0:\n" in text


def test_processes_meet_before_what_the_guard_makes():
    """Where the guard itself makes the loader and the model, no function is the entry."""
    head, loop = PLAIN.split("data = ", 1)
    made, loop = loop.split("for epoch", 1)
    body = f"data = {made}"
    text = (
        head
        + "\ndef train(model, loader, optimizer):\n    for epoch"
        + loop.split("torch.save")[0].replace("\n", "\n    ")
    )
    text += "\n\nif __name__ == '__main__':\n    " + body.replace("\n", "\n    ").rstrip()
    text += "\n    train(model, loader, optimizer)\n"
    lines = of(text).splitlines()
    guard = lines.index("if __name__ == '__main__':")
    assert next(i for i, line in enumerate(lines) if "init_process_group" in line) > guard
    assert next(i for i, line in enumerate(lines) if "destroy_process_group" in line) > guard


def test_a_sum_over_training_data_covers_all_processes():
    text = PLAIN + (
        "right = 0\nwith torch.no_grad():\n    for x, y in loader:\n"
        "        right += (model(x) > y).sum().item()\nprint(right / len(data))\n"
    )
    assert "right = all_sum(right)\n" in of(text)


def test_a_stream_gives_each_process_as_many_samples():
    text = PLAIN.replace("data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))", STREAM)
    text = of(text.replace(", shuffle=True", ""))
    part = text[text.index("class Part") : text.index("\n\n\nif WORLD_SIZE > 1")]
    taken = []
    for rank in range(2):
        names = {"torch": torch, "IterableDataset": object, "RANK": rank, "WORLD_SIZE": 2}
        exec(part, names)
        taken.append(list(names["Part"](range(7))))
    assert taken == [[0, 2, 4], [1, 3, 5]]
    assert "DataLoader(Part(data), batch_size=16 // WORLD_SIZE)" in text


def test_the_understood_parts_are_listed_with_their_lines():
    script = read_script(CASES / "scripts" / "throughput.py")
    said = {(note.line, note.text) for note in convert(script).understood}
    assert {(122, "model model"), (125, "optimizer SGD of model")} <= said
    assert {
        (61, "training loop over train_loader"),
        (75, "loss loss, over the batch: mean"),
    } <= said
    assert any(line == 61 and text.startswith("metrics ") for line, text in said)
    assert (91, "metrics losses, top1, top2") in said
    assert (103, "save") in said
