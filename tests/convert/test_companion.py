"""The helpers that a converted script imports, in real processes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from lockstep.convert.companion import _sections, written
from lockstep.processes.choose import _reason
from ranks import run_ranks

START = (
    "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n"
)


def said(folder: Path, number: int, text: str, *flags: str, names: tuple[str, ...]) -> list[str]:
    """What each process writes into its own file."""
    (folder / "parallel.py").write_text(written(names, set(flags)))
    script = folder / f"on_{number}.py"
    given = ", ".join((*names, "RANK"))
    write = "with open(f'{RANK}.txt', 'w') as f:\n    print(found, file=f)\n"
    script.write_text(f"from parallel import {given}\n{START}{text}\n{write}")
    run_ranks(script, number)
    return [(folder / f"{rank}.txt").read_text().strip() for rank in range(number)]


BATCHES = """\
torch.manual_seed(5)
data = TensorDataset(torch.arange({size}))
loader = {open}DataLoader(data, batch_size=8, shuffle=True, drop_last={drop}){close}
found = [[int(x) for x in batch[0]] for _ in range(2) for batch in loader]
"""


@pytest.mark.parametrize("number", [2, 4])
@pytest.mark.parametrize(("size", "drop"), [(32, False), (37, True), (38, False)])
def test_the_processes_divide_every_batch_of_one(
    tmp_path: Path, number: int, size: int, drop: bool
) -> None:
    plain = BATCHES.format(size=size, drop=drop, open="", close="")
    (whole,) = said(tmp_path, 1, plain, names=("divided",))
    text = BATCHES.format(size=size, drop=drop, open="divided(", close=")")
    parts = [eval(one) for one in said(tmp_path, number, text, names=("divided",))]
    expected = []
    for batch in eval(whole):
        rows = len(batch) // number * number
        expected.append([batch[rank:rows:number] for rank in range(number)])
    assert [list(batch) for batch in zip(*parts, strict=True)] == expected


UNEVEN = """\
torch.manual_seed(5)
data = TensorDataset(torch.arange(23.0)[:, None], torch.arange(23))
model = nn.Linear(1, 1, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
found = []
for x, number in divided(DataLoader(data, batch_size=7, shuffle=True)):
    loss = {loss}
    optimizer.zero_grad()
    {backward}
    optimizer.step()
    rows, count = all_rows(number).tolist(), all_sum(number.ne(-1).sum()).item()
    found.append((rows, count, whole(len(x)), round({whole}(loss).item(), 2)))
found.append([round(p.item(), 4) for p in model.parameters()])
"""
WAYS = {
    "ddp": ("(ddp(model)(x) - x).pow(2).mean()", "loss.backward()", "all_mean"),
    "average": ("(model(x) - x).pow(2).mean()", "loss.backward(); average(optimizer)", "all_mean"),
    "sum": ("(ddp(model)(x) - x).pow(2).sum()", "(loss * WORLD_SIZE).backward()", "all_sum"),
}


@pytest.mark.parametrize("number", [2, 3, 4])
@pytest.mark.parametrize("way", WAYS)
def test_batches_of_any_size_train_as_on_one_process(tmp_path: Path, number: int, way: str) -> None:
    """23 samples in batches of 7, 7, 7 and 2: of the last one, some processes have none."""
    loss, backward, whole = WAYS[way]
    text = UNEVEN.format(loss=loss, backward=backward, whole=whole)
    names = ("divided", "all_rows", "all_sum", "all_mean", "whole", "WORLD_SIZE")
    names += ("average",) if way == "average" else ("ddp",)
    flags = ("uneven", *["sums"] * (way == "sum"))
    (one,) = said(tmp_path, 1, text, *flags, names=names)
    assert set(said(tmp_path, number, text, *flags, names=names)) == {one}


def test_one_process_gets_the_loader_itself(tmp_path: Path) -> None:
    text = "loader = DataLoader(TensorDataset(torch.arange(8)))\nfound = divided(loader) is loader"
    assert said(tmp_path, 1, text, names=("divided",)) == ["True"]


def test_a_batch_that_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    text = (
        "data = TensorDataset(torch.arange(9))\n"
        "try:\n    found = list(divided(DataLoader(data, batch_size=3)))\n"
        "except ValueError as error:\n    found = error"
    )
    found = said(tmp_path, 2, text, names=("divided",))
    assert found == ["a batch of 3 cannot be divided by 2 processes"] * 2


@pytest.mark.parametrize("number", [2, 3])
def test_an_evaluation_that_is_spread_gives_all_outputs_in_order(
    tmp_path: Path, number: int
) -> None:
    text = """\
class Two(nn.Module):
    def forward(self, x, add):
        return {"twice": 2 * x, "more": (x + add, x.sum(1))}

model = Two().eval()
with torch.no_grad():
    same = []
    for size in (7, 6, 1, number):
        x = torch.arange(size * 2.0).reshape(size, 2)
        a, b = model(x, x), spread(model)(x, x)
        pairs = [(a["twice"], b["twice"]), *zip(a["more"], b["more"])]
        same.append(all(torch.equal(p, q) for p, q in pairs))
found = same
""".replace("number", str(number))
    names = ("spread", "divided")
    assert said(tmp_path, number, text, names=names) == ["[True, True, True, True]"] * number


def test_processes_start_with_common_numbers_and_train_with_their_own(tmp_path: Path) -> None:
    text = """\
first = torch.rand(1).item()
loader = divided(DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4))
inside = [torch.rand(1).item() for _ in loader]
found = first, inside[0], torch.rand(1).item()
"""
    a, b = (eval(one) for one in said(tmp_path, 2, text, names=("divided",)))
    assert a[0] == b[0]
    assert a[1] != b[1]
    assert a[2] == b[2]


@pytest.mark.parametrize("way", ["ddp", "average"])
def test_gradients_are_those_of_the_whole_batch(tmp_path: Path, way: str) -> None:
    text = """\
torch.manual_seed(1)
model = nn.Linear(3, 1)
x = torch.arange(12.0).reshape(4, 3) / 9
mine = rows(x)
{step}
whole = torch.autograd.grad(model(x).pow(2).mean(), list(model.parameters()))
found = all(torch.allclose(p.grad, g) for p, g in zip(model.parameters(), whole))
"""
    steps = {
        "ddp": "ddp(model)(mine).pow(2).mean().backward()",
        "average": "model(mine).pow(2).mean().backward()\naverage(model.parameters())",
    }
    found = said(tmp_path, 2, text.format(step=steps[way]), names=(way, "rows"))
    assert found == ["True", "True"]


TOGETHER = """\
torch.manual_seed(5)
first = TensorDataset(torch.arange(60.0)[:, None])
second = TensorDataset(torch.arange(180.0)[:, None])
model = nn.Linear(1, 1, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
found = []
one = divided(DataLoader(first, batch_size=10, shuffle=True))
other = divided(DataLoader(second, batch_size=30, shuffle=True))
for (x,), (y,) in zip(one, other):
    loss = (ddp(model)(x) - x).pow(2).mean() + (ddp(model)(y) + y).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    rows, mean = all_rows(x.long()).view(-1).tolist(), all_mean(loss).item()
    found.append((rows, whole(len(y)), round(mean, 2)))
found.append([round(p.item(), 4) for p in model.parameters()])
"""


@pytest.mark.parametrize("number", [2, 3, 4])
def test_batches_of_several_loaders_are_divided_in_one_ratio(tmp_path: Path, number: int) -> None:
    names = ("divided", "ddp", "all_rows", "all_mean", "whole")
    (whole,) = said(tmp_path, 1, TOGETHER, "together", names=names)
    assert said(tmp_path, number, TOGETHER, "together", names=names) == [whole] * number


def test_batches_that_have_no_ratio_are_refused(tmp_path: Path) -> None:
    text = """\
loaders = [divided(DataLoader(TensorDataset(torch.arange(30)), batch_size=n)) for n in (10, 9)]
try:
    found = list(zip(*loaders))
except ValueError as error:
    found = error
"""
    found = said(tmp_path, 2, text, "together", names=("divided",))
    assert found == ["a batch of 10 and of 9 cannot be divided by 2 processes"] * 2


MADE = """\
import random
random.seed(3)
data, marks = torch.arange(50.0)[:, None], [str(n) for n in range(50)]
model = nn.Linear(1, 1, bias=False)
nn.init.constant_(model.weight, 0.5)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def batch():
    chosen = random.sample(range(50), 7)
    return {{"x": data[chosen], "y": (data[chosen] * 2, [marks[n] for n in chosen])}}


def batches():
    for _ in range(4):
        yield batch()


found = []
for given in {loop}:
    given = {made}
    x, (y, names) = given["x"], given["y"]
    loss = (ddp(model)(x) - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    assert [float(name) for name in names] == x.view(-1).tolist()
    found.append((all_rows(x.long()).view(-1).tolist(), round(all_mean(loss).item(), 1)))
found.append(round(model.weight.item(), 3))
"""
MAKERS = {"dealt": ("dealt(batches())", "given"), "part_made": ("range(4)", "part_made(batch)")}


@pytest.mark.parametrize("number", [2, 4])
@pytest.mark.parametrize("way", MAKERS)
def test_batches_without_a_loader_are_divided(tmp_path: Path, way: str, number: int) -> None:
    loop, made = MAKERS[way]
    text = MADE.format(loop=loop, made=made)
    flags = ("uneven", "calls") if way == "part_made" else ("uneven",)
    names = (way, "ddp", "all_rows", "all_mean")
    (whole,) = said(tmp_path, 1, text, *flags, names=names)
    assert said(tmp_path, number, text, *flags, names=names) == [whole] * number


def test_rows_may_be_in_the_second_dimension(tmp_path: Path) -> None:
    text = """\
found = [x.tolist() for x in dealt([torch.arange(12).view(3, 4)], 1)]
"""
    parts = [eval(one) for one in said(tmp_path, 2, text, "uneven", names=("dealt",))]
    whole = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert parts == [[[row[rank::2] for row in whole]] for rank in range(2)]


def test_a_weight_that_no_process_has_used_keeps_no_gradient(tmp_path: Path) -> None:
    text = """\
torch.manual_seed(1)
a, b, c = (nn.Parameter(torch.ones(2)) for _ in range(3))
(a.sum() if RANK == 0 else b.sum()).backward()
average([a, b, c])
found = [None if p.grad is None else p.grad.tolist() for p in (a, b, c)]
"""
    assert said(tmp_path, 2, text, names=("average",)) == ["[[0.5, 0.5], [0.5, 0.5], None]"] * 2


def test_numbers_of_all_processes(tmp_path: Path) -> None:
    text = """\
x = torch.tensor([1.0, 2.0]) + RANK
found = all_sum(x).tolist(), all_mean(x).tolist(), all_rows(x).tolist(), same(x).tolist()
"""
    names = ("all_sum", "all_mean", "all_rows", "same")
    expected = "([3.0, 5.0], [1.5, 2.5], [1.0, 2.0, 2.0, 3.0], [1.0, 2.0])"
    assert said(tmp_path, 2, text, names=names) == [expected] * 2


def test_means_count_by_their_items(tmp_path: Path) -> None:
    text = """\
w = nn.Parameter(torch.ones(1))
values = [torch.tensor([1.0, 2.0, 6.0]), torch.tensor([])][RANK]
(mean_of_all((w * values).mean(), len(values))).backward()
average([w])
found = w.grad.item()
"""
    assert said(tmp_path, 2, text, names=("mean_of_all", "average")) == ["3.0"] * 2


def test_only_the_first_process_prints(tmp_path: Path) -> None:
    (tmp_path / "parallel.py").write_text(written((), set()))
    script = tmp_path / "train.py"
    script.write_text("import parallel\nprint('once')\n")
    assert run_ranks(script, 2) == ["once\n", ""]


def test_a_file_that_is_missing_is_made_once(tmp_path: Path) -> None:
    text = """\
import os
wait_for_first()
made = not os.path.exists("data.txt")
if made:
    torch.rand(3)
    open("data.txt", "w").write("x")
first_is_done()
found = made, torch.rand(1).item()
"""
    names = ("wait_for_first", "first_is_done")
    a, b = (eval(one) for one in said(tmp_path, 2, text, names=names))
    assert (a[0], b[0]) == (True, False)
    assert a[1] == b[1]


def test_a_proof_may_fork_programs_with_these_helpers() -> None:
    text = written(tuple(_sections()), {"np", "norms", "sync", "looks"})
    assert _reason(ast.parse(text)) is None
