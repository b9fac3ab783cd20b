"""Wrap models again when other parameters are trained, whichever variable holds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.convert import convert
from lockstep.convert.verify import verify
from lockstep.errors import ConvertError
from lockstep.source.reading import parse

DATA = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
loader = DataLoader(data, batch_size=16, shuffle=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.body(x))

    def unfreeze(self):
        self.body.requires_grad_(True)


def switch(module, on):
    for p in module.parameters():
        p.requires_grad = on
"""
TRAIN = """\


def train(model, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
{epoch}
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
{end}

net = Net()
{freeze}
{train}
"""
FREEZE = "for p in net.body.parameters():\n    p.requires_grad = False"
LOOP = "for p in model.body.parameters():\n    p.requires_grad = True"


def of(text: str) -> str:
    """A script from its text, converted."""
    return convert(parse(Path("train.py"), text)).text


def script(epoch: str = "pass", freeze: str = FREEZE, train: str = "train(net, 3)", end="") -> str:
    """Something that is done in every epoch, before the training, and to train."""
    inner = epoch.replace("\n", "\n" + 8 * " ")
    return DATA + TRAIN.format(epoch=8 * " " + inner, freeze=freeze, train=train, end=end)


def anew(name: str, indent: int) -> str:
    """Return the lines that wrap a model again."""
    spaces = " " * indent
    return (
        f"{spaces}if WORLD_SIZE > 1:\n{spaces}    {name} = DistributedDataParallel(bare({name}))\n"
    )


# Parameters that are thawed or frozen on the way.


@pytest.mark.parametrize(
    "epoch",
    ["pass", "switch(model, epoch > 0)", "model.train()"],
)
def test_a_model_that_stays_as_it_was_is_wrapped_once(epoch: str):
    text = of(script(epoch, freeze="# nothing is frozen"))
    assert text.count("= DistributedDataParallel(") == 1


def test_a_copy_that_is_frozen_is_another_model():
    copied = "import copy\nother = copy.deepcopy(net)\nfor p in other.body.parameters():\n"
    text = of(script(freeze=copied + "    p.requires_grad = False"))
    assert text.count("= DistributedDataParallel(") == 1


def test_parameters_that_were_put_aside_are_known():
    kept = "some = [p for n, p in model.named_parameters() if n[0] == 'b']\nfor p in some:\n"
    listed = "some = list(model.parameters())[:2]\nfor p in some:\n"
    layers = "some = model.layers[-1:]\nfor p in some:\n"
    for aside in (kept, listed, layers):
        text = of(script(aside + "    p.requires_grad = True"))
        assert "            p.requires_grad = True\n" + anew("model", 8) in text


def test_parameters_frozen_before_the_wrap_are_no_reason():
    assert of(script()).count("= DistributedDataParallel(") == 1
    factory = script().replace("net = Net()\n" + FREEZE, "net = make()")
    made = "def make():\n    it = Net()\n    for p in it.body.parameters():\n"
    made += "        p.requires_grad = False\n    return it\n\n\ndef train("
    text = of(factory.replace("def train(", made))
    assert text.count("= DistributedDataParallel(") == 1


@pytest.mark.parametrize(
    ("given", "emitted"),
    [
        (
            LOOP,
            "        for p in bare(model).body.parameters():\n"
            + 12 * " "
            + "p.requires_grad = True\n",
        ),
        ("model.body.requires_grad_()", "        bare(model).body.requires_grad_()\n"),
        ("model.requires_grad_(True)", "        model.requires_grad_(True)\n"),
        ("model.unfreeze()", "        bare(model).unfreeze()\n"),
        ("switch(model.body, True)", "        switch(bare(model).body, True)\n"),
        ("switch(model, True)", "        switch(model, True)\n"),
    ],
)
def test_a_model_is_wrapped_anew_in_the_branch_that_thaws(given: str, emitted: str):
    text = of(script("if epoch == 1:\n    " + given.replace("\n", "\n    ")))
    inner = "".join(f"    {line}\n" for line in emitted.splitlines())
    assert inner + anew("model", 12) in text


def test_a_part_that_is_frozen_after_the_wrap_is_a_reason_too():
    text = of(script("if epoch == 1:\n    model.head.requires_grad_(False)", freeze=""))
    assert "            bare(model).head.requires_grad_(False)\n" + anew("model", 12) in text


def test_several_changes_in_a_row_are_one():
    many = (
        "switch(model, False)\nmodel.head.requires_grad_()\nmodel.body.weight.requires_grad = True"
    )
    text = of(script(many))
    assert "        bare(model).body.weight.requires_grad = True\n" + anew("model", 8) in text
    assert text.count("= DistributedDataParallel(") == 2


def test_between_two_trainings_it_is_wrapped_anew():
    text = of(script(train=f"train(net, 1)\n{LOOP.replace('model', 'net')}\ntrain(net, 1)"))
    assert "    p.requires_grad = True\n" + anew("net", 0) + "train(net, 1)\n" in text


TRAINER = """\


class Trainer:
    def __init__(self, epochs):
        self.net = Net()
        self.freeze()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def freeze(self):
        self.net.body.requires_grad_(False)

    def thaw(self):
        self.net.body.requires_grad_(True)

    def fit(self):
        for epoch in range(3):
            if epoch == 1:
                self.thaw()
            for x, y in loader:
                self.optimizer.zero_grad()
                nn.functional.mse_loss(self.net(x), y).backward()
                self.optimizer.step()


Trainer(3).fit()
"""


def test_an_attribute_is_wrapped_anew_where_training_changes_it():
    text = of(DATA + TRAINER)
    assert "        self.freeze()\n        if WORLD_SIZE > 1:\n            self.net = " in text
    assert "                self.thaw()\n" + anew("self.net", 16) in text
    assert text.count("= DistributedDataParallel(") == 2


def test_another_name_of_the_model_is_refused():
    text = (DATA + TRAINER).replace("for x, y", "net = self.net\n            for x, y")
    with pytest.raises(ConvertError, match=r"line 42: .* line 46 calls it net\. Use self\.net"):
        of(text.replace("self.net(x)", "net(x)"))


def test_a_caller_that_goes_on_with_the_old_wrap_is_refused():
    twice = script(LOOP, train="train(net, 1)\ntrain(net, 1)")
    with pytest.raises(ConvertError, match=r"line 30: .* line 41 continues with the old one"):
        of(twice)
    back = script(LOOP, train="net = train(net, 1)\nnet = train(net, 1)", end="    return model\n")
    assert anew("model", 8) in of(back)


def test_two_processes_go_on_as_one_after_thawing(tmp_path: Path):
    path, result = tmp_path / "train.py", tmp_path / "result.py"
    path.write_text(script(f"if epoch == 1:\n    {LOOP.replace(chr(10), chr(10) + '    ')}"))
    result.write_text(of(path.read_text()))
    verdict = verify(path, result, replicas=(2,), working=tmp_path, doctor=True, steps=6)
    assert verdict.proved, verdict
    assert [f.message for f in verdict.findings if f.certain] == []


# Batch norm.

NORM = script(freeze="").replace("nn.Linear(4, 4), ", "nn.BatchNorm1d(4), ")
AVERAGED = NORM.replace(
    "train(net, 3)",
    "slow = torch.optim.swa_utils.AveragedModel(net)\n"
    "train(net, 3)\n"
    "torch.optim.swa_utils.update_bn({0}, slow)\n"
    "fast = torch.optim.swa_utils.AveragedModel(net)",
)


def test_batch_norm_is_synchronised_where_torch_can():
    assert "convert_sync_batchnorm" not in of(script())
    assert (
        "    if torch.cuda.is_available():\n"
        "        net = torch.nn.SyncBatchNorm.convert_sync_batchnorm(net)\n"
        "    net = DistributedDataParallel(net, broadcast_buffers=False)\n"
    ) in of(NORM)


def test_an_averaged_model_measures_its_batch_norm_on_all_processes():
    text = of(AVERAGED.format("loader"))
    assert (
        "if WORLD_SIZE > 1:\n"
        "    if torch.cuda.is_available():\n"
        "        torch.nn.SyncBatchNorm.convert_sync_batchnorm(slow)\n"
        "torch.optim.swa_utils.update_bn(loader, slow)\n"
        "fast = torch.optim.swa_utils.AveragedModel(bare(net))\n"
    ) in text


def test_a_copy_that_is_made_before_the_wrap_is_synchronised_too():
    copied = "import copy\nteacher = copy.deepcopy(net)"
    assert "teacher = torch" not in of(script(freeze=copied))
    assert (
        "    net = DistributedDataParallel(net, broadcast_buffers=False)\n"
        "    if torch.cuda.is_available():\n"
        "        teacher = torch.nn.SyncBatchNorm.convert_sync_batchnorm(teacher)\n"
    ) in of(script(freeze=copied).replace("nn.Linear(4, 4), ", "nn.BatchNorm1d(4), "))


def test_an_averaged_model_that_sees_all_the_data_is_left_alone():
    text = of(AVERAGED.format("DataLoader(data, batch_size=16)"))
    assert "convert_sync_batchnorm(slow)" not in text


# Where models are held.

STOPPER = """\


class Stopper:
    def __call__(self, loss, model):
        if loss < 1:
            self.save(model)

    def save(self, model):
        torch.save(model.state_dict(), "model.pt")


class Other(Stopper):
    pass


stop = Other()
"""


def test_a_model_is_known_to_an_object_that_is_called_with_it():
    text = script(train="train(net, 3)\nstop(0.5, net)")
    text = text.replace("\n\nnet = Net()", STOPPER + "net = Net()")
    assert 'torch.save(bare(model).state_dict(), "model.pt")' in of(text)
    other = text.replace("stop(0.5, net)", "stop(0.5, Net())")
    assert 'torch.save(model.state_dict(), "model.pt")' in of(other)


SEVERAL = (
    DATA
    + """\


nets = {made}
optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets{values}]
for epoch in range(2):
    for x, y in loader:
        for net, optimizer in zip(nets{values}, optimizers):
            optimizer.zero_grad()
            nn.functional.mse_loss(net(x), y).backward()
            optimizer.step()
for {pair} in {pairs}(nets{items}):
    torch.save(net.state_dict(), f"{{key}}.pt")
torch.save(nets[{first}].body.state_dict(), "body.pt")
"""
)
LIST = SEVERAL.format(
    made="[Net() for _ in range(2)]",
    values="",
    pair="key, net",
    pairs="enumerate",
    items="",
    first="0",
)
DICT = SEVERAL.format(
    made='{"one": Net(), "other": Net()}',
    values=".values()",
    pair="key, net",
    pairs="",
    items=".items()",
    first='"one"',
)


def test_every_model_of_a_list_is_wrapped():
    text = of(LIST)
    assert "    nets = [DistributedDataParallel(model) for model in nets]\n" in text
    assert "torch.save(bare(net).state_dict(), " in text
    assert "torch.save(bare(nets[0]).body.state_dict(), " in text


def test_every_model_of_a_dictionary_is_wrapped():
    text = of(DICT)
    assert "nets = {key: DistributedDataParallel(model) for key, model in nets.items()}\n" in text
    assert "torch.save(bare(net).state_dict(), " in text
    assert 'torch.save(bare(nets["one"]).body.state_dict(), ' in text
    norms = of(DICT.replace("nn.Linear(4, 4)", "nn.BatchNorm1d(4)"))
    assert "convert_sync_batchnorm(model) for key, model in nets.items()}\n" in norms


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "[Net() for _ in range(2)]",
            "[]\nnets.append(Net())",
            "search ended at nets in line 27",
        ),
        ("[Net() for _ in range(2)]", "[net, net]", "search ended at nets in line 27"),
        ("optimizers = ", "first = nets[0]\noptimizers = ", r"nets\[0\] gets another name before"),
    ],
)
def test_several_models_that_cannot_be_wrapped_are_refused(old: str, new: str, reason: str):
    with pytest.raises(ConvertError, match=reason):
        of(LIST.replace(old, new))


def test_a_model_that_is_made_in_a_call_is_wrapped_where_it_is_kept():
    text = (
        (DATA + TRAINER)
        .replace("self, epochs", "self, net")
        .replace("Trainer(3)", "Trainer(Net())")
    )
    text = text.replace("self.net = Net()", "self.net, self.epochs = net, 3")
    text = text.replace("SGD(self.net.", "SGD(net.").replace("self.thaw()", "pass")
    assert (
        "        self.freeze()\n"
        "        if WORLD_SIZE > 1:\n"
        "            self.net = DistributedDataParallel(self.net)\n"
    ) in of(text)


def test_two_processes_train_several_models_as_one_does(tmp_path: Path):
    path, result = tmp_path / "train.py", tmp_path / "result.py"
    path.write_text(LIST)
    result.write_text(of(LIST))
    verdict = verify(path, result, replicas=(2,), working=tmp_path, doctor=True, steps=4)
    assert verdict.proved, verdict
