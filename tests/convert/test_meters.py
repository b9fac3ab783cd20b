"""Sums, meters and lists of a divided evaluation are reduced over all processes."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest

from lockstep.convert import Conversion, Options, convert
from lockstep.convert.draft import Draft
from lockstep.convert.verify import verify
from lockstep.source.reading import parse, read_script
from ranks import run_ranks

SCRIPTS = Path(__file__).parent.parent / "cases" / "convert" / "scripts"

METER = """\
class Mean:
    def __init__(self):
        self.clear()

    def clear(self):
        self.value = self.total = self.mean = 0.0
        self.number = 0

    def add(self, value, n=1):
        self.value = value
        self.total += value * n
        self.number += n
        self.mean = self.total / self.number
"""

TEMPLATE = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{meter}

def evaluate(model, loader):
{before}
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            loss = nn.functional.mse_loss(out, y)
{inside}
{after}


torch.manual_seed(0)
train_set = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
test_set = TensorDataset(torch.randn(22, 4), torch.randn(22, 1))
train_loader = DataLoader(train_set, batch_size=8)
test_loader = DataLoader(test_set, {loader})
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
{start}
    for x, y in train_loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
{feed}
{end}
    print(evaluate(model, test_loader))
"""


def script(
    before: str = "    total = 0",
    inside: str = "total += loss.item()",
    after: str = "    return total",
    loader: str = "batch_size=8",
    start: str = "",
    feed: str = "",
    end: str = "",
) -> str:
    """A script that trains, and evaluates in this way."""
    more = "\n".join(" " * 12 + line for line in inside.splitlines())
    text = TEMPLATE.format(
        meter=METER,
        before=before,
        inside=more,
        after=after,
        loader=loader,
        start=start,
        feed=" " * 8 + feed,
        end=end,
    )
    return text.replace("\n\n    for", "\n    for").replace("        \n\n", "")


def of(text: str) -> Conversion:
    """A script from its text, converted."""
    return convert(parse(Path("train.py"), text))


def why(found: Conversion) -> str:
    """Why every process evaluates all."""
    return "".join(note.text for note in found.notes if "every process" in note.text)


def printed(folder: Path, text: str, number: int = 1, rank: int = 0) -> list[str]:
    """Return what one of several processes prints."""
    path = folder / f"train_{number}.py"
    path.write_text(text)
    return run_ranks(path, number)[rank].splitlines()


# -- what stays as it is -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("evaluation", "reason"),
    [
        ({"before": "    total = 1e-8"}, "total does not begin at zero"),
        ({"before": "    total = 0\n    for _ in range(2): total += 1"}, "begin at zero"),
        ({"inside": "total += loss.item()\nif total > 5: return 1"}, "may end early"),
        ({"inside": "total += loss.item()\nmetric.update(out, y)"}, "what metric.update keeps"),
        ({"inside": "total += loss.item()\nkept[0] = out"}, "kept does not start as a new"),
        ({"inside": "total += loss.item()\nmodel.seen += 1"}, "model.seen does not begin"),
        ({"inside": "out, h = step(out, h)\ntotal += out.sum()"}, "h passes from batch to batch"),
        ({"after": "    return total, out"}, "out is used after the loop"),
        ({"loader": "batch_size=8, shuffle=True"}, "values belong to whole batches"),
    ],
)
def test_all_is_evaluated_by_all_where_it_cannot_be_followed(evaluation: dict, reason: str):
    found = of(script(**evaluation))
    assert reason in why(found)
    assert "all_sum" not in found.text


@pytest.mark.parametrize(
    ("inside", "after", "reason"),
    [
        ("if y[0] > 0: kept.append(out.tolist())", "    return kept", "not filled once"),
        ("if y[0] > 0: continue\nkept.append(out.tolist())", "    return kept", "not filled once"),
        ("for v in y: kept.append(v.item())", "    return kept", "not filled once"),
        ("kept.append((out, y))", "    return kept", "may hold tensors on a GPU"),
        ("kept.extend(y.tolist()); n = len(kept)", "    return kept", "is read as it grows"),
    ],
)
def test_lists_whose_order_is_not_seen_stay_whole(inside: str, after: str, reason: str):
    found = of(script("    kept = []", inside, after))
    assert reason in why(found)
    assert "all_gather" not in found.text


def test_a_list_that_grows_from_epoch_to_epoch_is_left_alone():
    text = script("    pass", "history.append(loss.item())", "    return np.mean(history)")
    assert "lockstep cannot see what history.append keeps" in why(
        of(text.replace("torch.manual_seed(0)", "history = []"))
    )


def test_the_last_value_of_a_meter_is_that_of_the_last_batch():
    reads = "    return meter.mean, meter.value"
    found = of(script("    meter = Mean()", "meter.add(loss.item(), x.size(0))", reads))
    assert "the last value of meter is used" in why(found)


def test_a_meter_that_does_more_is_no_meter():
    text = script("    meter = Mean()", "meter.add(loss.item())", "    return meter.mean")
    found = of(text.replace("self.value = value\n", "self.values.append(value)\n"))
    assert "lockstep cannot see what meter.add keeps" in why(found)


def test_a_meter_from_before_is_left_alone():
    text = script("    pass", "meter.add(loss.item())", "    return meter.mean")
    assert "meter.add" in why(of(text.replace("torch.manual_seed(0)", "meter = Mean()")))
    cleared = text.replace("    pass", "    meter.clear()")
    assert not why(of(cleared.replace("torch.manual_seed(0)", "meter = Mean()")))


def test_a_loop_over_data_that_are_not_divided_adds_nothing_up():
    text = script().replace(
        "    print(evaluate(model, test_loader))",
        "    print(evaluate(model, test_loader), evaluate(model, other_loader))",
    )
    other = "other_loader = DataLoader(test_set, batch_size=8, shuffle=True)\nmodel ="
    found = of(text.replace("model =", other, 1))
    assert "its loop also goes through data that are not divided" in why(found)
    assert "all_sum" not in found.text


def test_a_loop_that_also_goes_through_a_plain_list_adds_nothing_up():
    text = script().replace("evaluate(model, test_loader))", "evaluate(model, test_loader), more)")
    found = of(
        text.replace("    print(", "    more = evaluate(model, [train_set[:8]])\n    print(")
    )
    assert "lockstep cannot see all that line" in why(found)
    assert "all_sum" not in found.text


def test_a_function_that_adds_to_what_it_is_given_keeps_something():
    text = script(inside="total += loss.item()\nadd(table, out)")
    adds = "def add(table, out):\n    table[0] += out\n\n\ndef evaluate"
    assert "add keeps" in why(of(text.replace("def evaluate", adds)))
    shows = "def add(table, out):\n    mean = out.mean()\n    mean += 1\n\n\ndef evaluate"
    assert not why(of(text.replace("def evaluate", shows)))


# -- what is divided ---------------------------------------------------------------------------


def test_a_loop_over_two_loaders_is_brought_together_once():
    text = script().replace(
        "    print(evaluate(model, test_loader))",
        "    print(evaluate(model, test_loader), evaluate(model, other_loader))",
    )
    found = of(text.replace("model =", "other_loader = DataLoader(train_set, 4)\nmodel =", 1))
    assert found.text.count("total = all_sum(total)") == 1
    assert found.text.count("% WORLD_SIZE == RANK]") == 2


def test_meters_are_recognised_by_what_they_do():
    reads = "    return meter.mean, other.mean"
    feeds = "meter.add(loss.item(), x.size(0))\nother.add(loss.item() ** 0.5, x.size(0))"
    found = of(script("    meter, other = Mean(), Mean()", feeds, reads))
    assert (
        "        if WORLD_SIZE > 1:\n"
        "            for meter_2 in (meter, other):\n"
        "                meter_2.total = all_sum(meter_2.total)\n"
        "                meter_2.number = all_sum(meter_2.number)\n"
        "                meter_2.mean = meter_2.total / meter_2.number\n" in found.text
    )


def test_the_steps_of_training_are_counted_once():
    found = of(
        script(
            start="    meter = Mean()",
            feed="meter.add(loss.item())",
            end="    print(meter.mean)",
        )
    )
    assert (
        "    if WORLD_SIZE > 1:\n"
        "        meter.total = all_sum(meter.total) / WORLD_SIZE\n"
        "        meter.mean = meter.total / meter.number\n" in found.text
    )


def test_text_after_an_inner_statement_comes_before_text_after_the_outer_one():
    draft = Draft(parse(Path("x.py"), "for a in b:\n    c()\n"))
    (outer,) = draft.script.tree.body
    assert isinstance(outer, cst.For)
    draft.after(outer, "end")
    draft.after(outer.body.body[0], "inner")
    assert draft.text() == "for a in b:\n    c()\n    inner\nend\n"


@pytest.mark.parametrize(
    ("loader", "dealt"),
    [
        ("batch_size=8, drop_last=False", "i // 8 % WORLD_SIZE == RANK"),
        ("8", "i // 8 % WORLD_SIZE == RANK"),
        ("batch_size=2 + 2", "i // (2 + 2) % WORLD_SIZE == RANK"),
        ("num_workers=0", "i % WORLD_SIZE == RANK"),
    ],
)
def test_batches_stay_whole(loader: str, dealt: str):
    assert f"sampler=[i for i in range(len(test_set)) if {dealt}]" in of(script(loader=loader)).text


def test_a_progress_bar_keeps_nothing():
    text = script("    total = 0\n    bar = tqdm(loader)", "total += loss.item()\nbar.update(1)")
    found = of(text.replace("import torch\n", "import torch\nfrom tqdm import tqdm\n", 1))
    assert "total = all_sum(total)" in found.text


def test_tensors_come_back_on_the_gpu_of_their_reader():
    tensors = of(script("    kept = []", "kept.append(out)", "    return torch.cat(kept)")).text
    assert "(v.cpu(), v.is_cuda)" in tensors
    numbers = of(script("    kept = []", "kept.append(out.cpu())", "    return kept")).text
    assert "is_cuda" not in numbers


def test_the_meters_of_another_file_are_followed():
    found = convert(read_script(SCRIPTS / "meters" / "main.py"))
    assert found.text.count("for meter in (losses, top1") == 2
    assert not found.notes


def test_names_that_a_later_loop_sets_are_not_read_after_the_first():
    again = "    other = 0\n    for x, y in loader:\n        out = model(x)\n"
    found = of(script(after=again + "        other += out.max().item()\n    return total, other"))
    assert not why(found)
    assert "\n        total = all_sum(total)\n" in found.text
    assert "\n    other = all_sum(other)\n" in found.text


def test_a_meter_that_computes_when_asked_needs_its_sums_only():
    text = script("    meter = Mean()", "meter.add(loss.item())", "    return meter.mean")
    asked = "\n    @property\n    def mean(self):\n        return self.total / self.number\n"
    text = text.replace("        self.mean = self.total / self.number\n", asked)
    found = of(text.replace("self.mean = 0.0", "0.0"))
    assert (
        "        meter.total = all_sum(meter.total)\n"
        "        meter.number = all_sum(meter.number)\n"
        "    return meter.mean\n" in found.text
    )


def test_a_name_that_is_replaced_by_its_mean_is_still_added_up():
    found = of(script(after="    total = total / len(loader)\n    return total"))
    assert "total = all_sum(total)\n" in found.text


EVALUATIONS = {
    "meters": (
        "    meter, other = Mean(), Mean()",
        "meter.add(loss.item(), x.size(0))\nother.add(out.max().item())",
        "'%.4f %.4f %d' % (meter.mean, other.mean, meter.number)",
    ),
    "a number that turns into a tensor": (
        "    hits = 0",
        "hits += (out > y).sum()",
        "hits.item()",
    ),
    "means of batches": (
        "    losses = []",
        "losses.append(loss.item())",
        "'%.4f %.4f' % (np.mean(losses), sum(losses) / len(losses))",
    ),
    "a value for each sample": (
        "    preds, labels = [], []",
        "preds.extend(out.squeeze(1).tolist())\nlabels += y.squeeze(1).tolist()",
        "[round(v, 4) for v in preds + labels]",
    ),
    "tensors": (
        "    outs = []",
        "outs.append(out)",
        "[round(v, 4) for v in torch.cat(outs).squeeze(1).tolist()]",
    ),
    "a list in a dictionary": (
        "    kept = {'outs': [], 'n': 0}",
        "kept['outs'].append(out.numpy())\nkept['n'] += len(x)",
        "(kept['n'], ['%.4f' % v for v in np.concatenate(kept['outs'])[:, 0]])",
    ),
    "dictionaries": (
        "    totals = {'loss': 0.0, 'n': 0}\n    signs = {True: 0, False: 0}",
        "totals['loss'] += loss.item() * len(x)\ntotals['n'] += len(x)\n"
        "for t in y > 0:\n    signs[t.item()] += 1",
        "('%.4f' % totals['loss'], totals['n'], signs)",
    ),
    "arrays": (
        "    table = np.zeros((2, 2), dtype=int)\n    counts = [0] * 2\n"
        "    matrix = torch.zeros(2, 2, dtype=torch.long)",
        "for t, p in zip((y > 0).long(), (out > 0).long()):\n"
        "    table[t, p] += 1\n    matrix[t, p] += 1\n    counts[t] += 1",
        "(table.tolist(), matrix.tolist(), counts)",
    ),
    "sums that are written out": (
        "    total = 0\n    worst = 0.0",
        "total = total + loss.item()\nworst = worst + out.max().item()",
        "'%.4f %.4f' % (total / len(loader), worst)",
    ),
}


@pytest.mark.parametrize("name", EVALUATIONS)
def test_kept_values_are_followed(name: str):
    before, inside, value = EVALUATIONS[name]
    assert not why(of(script(before, inside, f"    return {value}")))


def test_one_process_and_more_than_there_are_batches_print_the_same(tmp_path: Path):
    every = list(EVALUATIONS.values())
    before, inside, values = ("\n".join(part) for part in zip(*every, strict=True))
    text = script(before, inside, f"    return [{values.replace(chr(10), ', ')}]")
    found = of(text).text
    alone = printed(tmp_path, text)
    assert len(alone) == 2
    assert printed(tmp_path, found) == alone
    # Three batches, the last of six samples; the fourth process has none.
    assert printed(tmp_path, found, 4) == alone
    # It had the zero that it began with, which is no float, and must decide as all do.
    assert printed(tmp_path, found.replace("if RANK == 0:", "if RANK == 3:"), 4, rank=3) == alone


@pytest.mark.parametrize("name", ["meters/main.py", "collected.py"])
def test_divided_evaluations_are_proved(tmp_path: Path, name: str):
    found = convert(read_script(SCRIPTS / name))
    assert not why(found)
    result = tmp_path / "result.py"
    result.write_text(found.text)
    for part in (SCRIPTS / name).parent.glob("meter.py"):
        (tmp_path / part.name).write_text(part.read_text())
    verdict = verify(
        SCRIPTS / name, result, replicas=(1, 2), working=tmp_path, doctor=False, steps=4
    )
    assert [c.text for c in verdict.comparisons if c.status != "equal"] == []
    assert not verdict.failure


def test_a_mean_times_a_count_is_a_sum():
    text = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=16)
dev_loader = DataLoader(TensorDataset(torch.randn(50, 4), torch.randn(50, 1)), batch_size=16)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def go(batches, learn):
    total = count = 0
    for x, y in batches:
        loss = torch.nn.functional.mse_loss(model(x), y)
        if learn:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        n = x.size(0)
        total += loss.item() * n
        count += n
    return total / count


for epoch in range(2):
    print(go(loader, True), go(dev_loader, False))
"""
    found = convert(parse(Path("train.py"), text)).text
    assert "total = all_sum(total)\n" in found
    assert "count = all_sum(count)\n" in found
    # The data that are only looked at are not padded, and have no epoch.
    assert "sampler=range(RANK, len(dev_set), WORLD_SIZE)" in found
    assert "dev_loader.sampler" not in found


def test_a_list_that_is_emptied_after_the_loop_is_that_of_all_processes():
    text = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=16)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(2):
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(sum(losses) / len(losses))
    losses = []
"""
    found = convert(parse(Path("train.py"), text)).text
    assert "losses = [all_sum(value) / WORLD_SIZE for value in losses]\n" in found


def test_local_batch_norm_keeps_evaluations_whole():
    """DDP sends buffers in every forward, so all processes must make as many."""
    text = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader, test_loader = DataLoader(data, batch_size=16, shuffle=True), DataLoader(data, batch_size=16)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    total = 0.0
    with torch.no_grad():
        for x, y in test_loader:
            total += (model(x) - y).abs().sum().item()
    print(total)
"""
    script = parse(Path("train.py"), text)
    assert "total = all_sum(total)" in convert(script).text
    found = convert(script, Options(sync_batch_norm=False))
    assert "all_sum" not in found.text
    assert "broadcast_buffers" not in found.text
    assert any("statistics of one process" in note.text for note in found.notes)
