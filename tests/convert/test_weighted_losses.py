"""Processes with more labelled items count for more in the mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from converting import faults, proven
from lockstep.convert import Conversion, Options, read_only
from lockstep.errors import ConvertError
from lockstep.source.reading import parse

SCRIPT = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

PAD = 0
torch.manual_seed(0)
labels = torch.randint(1, 4, (48, 6))
labels[torch.rand(48, 6) < 0.4] = PAD
# half of a batch has no labels at all
labels[::2, 3:] = PAD
data = TensorDataset(torch.randint(1, 9, (48, 6)), labels)
loader = DataLoader(data, batch_size=4)
model = nn.Sequential(nn.Embedding(9, 16), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
weight = torch.tensor([1.0, 2.0, 0.5, 1.0])
{before}
for epoch in range(2):
    for words, tags in loader:
        scores = model(words).transpose(1, 2)
        {step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""
PLAIN = "loss = "


def read(text: str) -> Conversion:
    return read_only(parse(Path("train.py"), text), Options())


def of(step: str, before: str = "") -> str:
    return SCRIPT.format(step=step, before=before)


def weighed(text: str) -> list[str]:
    """Lines of the converted script in which a mean is weighed."""
    lines = read(text).text.splitlines()
    return [line.strip() for line in lines if "mean_of_all(" in line and "def " not in line]


def test_labels_that_a_criterion_leaves_out_are_not_counted():
    text = of(
        PLAIN + "criterion(scores, tags)", "criterion = nn.CrossEntropyLoss(ignore_index=PAD)"
    )
    (line,) = weighed(text)
    assert line.endswith(
        "loss = mean_of_all(criterion(scores, tags), (tags != criterion.ignore_index).sum())"
    )


def test_class_weights_are_summed_over_the_labels_that_are_kept():
    text = of(PLAIN + "F.cross_entropy(scores, tags, weight, ignore_index=PAD)")
    assert "labelled = weight[tags[tags != PAD]].sum()\n" in read(text).text


def test_a_long_line_gets_a_name_for_the_count():
    made = "the_criterion_of_this_script = nn.CrossEntropyLoss(ignore_index=PAD)"
    text = of(PLAIN + "the_criterion_of_this_script(scores, tags)", made)
    (line,) = weighed(text)
    assert line.endswith("mean_of_all(the_criterion_of_this_script(scores, tags), labelled)")


def test_minus_100_is_left_out_unasked():
    text = of(PLAIN + "F.cross_entropy(scores, tags)").replace("] = PAD", "] = -100")
    assert weighed(text)[0].endswith(
        "mean_of_all(F.cross_entropy(scores, tags), (tags != -100).sum())"
    )


@pytest.mark.parametrize(
    "step",
    [
        PLAIN + "F.cross_entropy(scores, tags)",
        PLAIN + "F.cross_entropy(scores, tags, weight=None)",
        PLAIN + "F.cross_entropy(scores, tags, ignore_index=PAD, reduction='sum')",
        PLAIN + "F.cross_entropy(scores, tags, reduction='none').sum() / len(tags)",
        PLAIN + "(scores.sum(1) / scores.sum(1).detach()).mean()",
    ],
)
def test_other_means_and_sums_stay_as_they_are(step: str):
    assert weighed(of(step)) == []


def test_one_function_for_training_and_evaluation_counts_in_both():
    before = (
        "def step_loss(scores, tags):\n    return F.cross_entropy(scores, tags, ignore_index=PAD)\n"
        "others = DataLoader(data, batch_size=4)"
    )
    text = of(PLAIN + "step_loss(scores, tags)", before) + (
        "with torch.no_grad():\n    for words, tags in others:\n"
        "        print(step_loss(model(words).transpose(1, 2), tags).item())\n"
    )
    assert weighed(text) == [
        "return mean_of_all(F.cross_entropy(scores, tags, ignore_index=PAD), (tags != PAD).sum())"
    ]


DICE = """\
def dice(pred, target):
    return 1 - 2 * (pred * target).sum() / (pred.sum() + target.sum())
"""


def test_a_ratio_of_sums_from_the_model_is_refused():
    text = of("loss = dice(model(words).sigmoid()[..., 0], tags)", DICE)
    with pytest.raises(ConvertError, match="line 18: the loss is a ratio of two sums"):
        read(text)


def test_a_ratio_for_each_sample_is_not():
    dice = DICE.replace(".sum()", ".sum(1)").rstrip()
    text = of("loss = dice(model(words).sigmoid()[..., 0], tags).mean()", dice)
    assert weighed(text) == []


MASKED = """\
def masked(losses, mask):
    return (losses * mask).sum() / mask.sum()
"""


@pytest.mark.parametrize(
    ("step", "before"),
    [
        (
            PLAIN + "criterion(scores, tags)",
            "criterion = nn.CrossEntropyLoss(weight, ignore_index=PAD)",
        ),
        (
            PLAIN
            + "masked(F.cross_entropy(scores, tags, reduction='none'), (tags != PAD).float())",
            MASKED,
        ),
        (
            PLAIN + "F.cross_entropy(scores, tags, ignore_index=PAD) + 0.1 * scores.pow(2).mean()",
            "labels[:8:4] = PAD",  # what the first of two ranks has in two steps
        ),
    ],
    ids=["weights", "mask", "none in a part"],
)
def test_the_gradients_of_two_processes_are_those_of_one(tmp_path: Path, step: str, before: str):
    script = tmp_path / "train.py"
    script.write_text(of(step, before))
    assert faults(proven(script).verdict) == []


@pytest.mark.parametrize(
    "step",
    [
        "F.cross_entropy(scores, tags) + sum(p.abs().sum() for p in model.parameters())",
        "F.cross_entropy(scores, tags) + model[1].weight.pow(2).sum()",
        "F.cross_entropy(scores, tags) + penalty(model)",
        "F.cross_entropy(scores, tags)\n        for p in model.parameters():\n"
        "            loss = loss + p.abs().sum()",
    ],
)
def test_a_penalty_on_weights_is_no_sum_over_the_batch(step: str):
    before = "def penalty(net):\n    return net[1].weight.abs().sum()"
    assert "* WORLD_SIZE" not in read(of(PLAIN + step, before)).text


@pytest.mark.parametrize(
    ("step", "factor"),
    [
        ("terms = {'a': F.cross_entropy(scores, tags), 'b': scores.pow(2).mean()}", False),
        ("terms = {'a': scores.sum()}\n        terms['b'] = scores.pow(2).sum()", True),
        ("terms = [F.cross_entropy(scores, tags), scores.mean()]", False),
    ],
)
@pytest.mark.parametrize("added", ["sum(terms{})", "sum(term for term in terms{})"])
def test_the_sum_of_terms_is_what_its_terms_are(step: str, factor: bool, added: str):
    added = added.format(".values()" if "{" in step else "")
    text = read(of(f"{step}\n        loss = {added}")).text
    assert ("(loss * WORLD_SIZE).backward()" in text) == factor
