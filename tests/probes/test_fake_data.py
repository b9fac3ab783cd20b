"""Run scripts whose data and libraries are missing, each in its own process, under the probes.

The test's sitecustomize hides libraries that this machine has. torchvision is the real one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from lockstep.probes.run_script import Outcome, ScriptRun
from lockstep.probes.run_script import run as start
from lockstep.probes.settings import Settings
from lockstep.probes.trace import read
from torchvision_folder import FOLDER

HIDE = """
import sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
names = {names!r}.split()
PathFinder.find_spec = classmethod(
    lambda cls, name, *rest: None if name in names else find(name, *rest)
)
"""
LIBRARIES = "tqdm wandb mlflow visdom matplotlib mpl_toolkits tensorboard tensorboardX"


class Runs:
    """Runs scripts in an empty folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place, self.hidden, self.notes = (folder / n for n in ("place", "hidden", "notes"))
        self.place.mkdir()
        self.hidden.mkdir()
        monkeypatch.chdir(self.place)
        monkeypatch.syspath_prepend(self.hidden)
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        here = str(Path(__file__).parents[2] / "src")
        monkeypatch.setenv("PYTHONPATH", f"{self.hidden}:{here}:{FOLDER}")
        self.count = 0

    def start(self, body: str, hide: str = LIBRARIES, **settings: object) -> Outcome:
        (self.hidden / "sitecustomize.py").write_text(HIDE.format(names=hide))
        self.folder = self.notes / str(self.count)
        self.folder.mkdir(parents=True)
        self.count += 1
        script = self.place / "train.py"
        script.write_text(body)
        told = Settings(folder=str(self.folder), **{"stand_in_data": True, **settings})
        # A fork would not read the sitecustomize that hides libraries.
        return start(ScriptRun(script=script, ranks=0, settings=told, fork=False))

    def __call__(self, body: str, hide: str = LIBRARIES, **settings: object) -> list[str]:
        """Run a script to its end, and return what was replaced."""
        outcome = self.start(body, hide, **settings)
        assert outcome.how == "finished", outcome.logs[0].read_text()
        self.said = outcome.logs[0].read_text()
        return read(self.folder, outcome).fake_data


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(tmp_path, monkeypatch)


def test_without_being_asked_nothing_is_replaced(run: Runs):
    body = """
import torch
for line in ("import torchvision", "import wandb", "open('train.txt')"):
    try:
        exec(line)
    except (ImportError, OSError):
        continue
    raise AssertionError(line)
"""
    assert run(body, hide=f"{LIBRARIES} torchvision", stand_in_data=False) == []


def test_the_message_says_what_to_type_if_torchvision_is_missing(run: Runs):
    outcome = run.start("import torch\nimport torchvision\n", hide="torchvision")
    assert outcome.how == "crashed"
    said = outcome.logs[0].read_text()
    minor = int(torch.__version__.split(".")[1])
    assert f"pip install --no-deps 'torchvision==0.{minor + 15}.*' pillow" in said
    optional = "try:\n    import torchvision\nexcept ImportError:\n    pass\n"
    assert run(optional, hide="torchvision") == []


def test_a_script_that_needs_nothing_is_left_alone(run: Runs):
    body = """
import os, pathlib, torch
try:
    import flax_that_nobody_knows
except ImportError:
    pass
for name in ("labels.txt", "weights.bin", "train.csv", "log.txt"):
    assert not os.path.exists(name) and not pathlib.Path(name).exists()
    try:
        open(name)
    except FileNotFoundError:
        pass
open("train.txt", "w").write("mine")
assert open("train.txt").read() == "mine"
"""
    assert run(body, hide="") == []


LIBRARY = """
import sysconfig
code = compile("import wandb", sysconfig.get_path("purelib") + "/lib.py", "exec")
try:
    exec(code)
except ImportError:
    import wandb
else:
    raise AssertionError("a library was helped")
"""


def test_only_the_script_is_helped_as_libraries_know_how_to_do_without_each_other(run: Runs):
    assert run(LIBRARY) == ["wandb: not installed, a small stand-in"]


TRAIN = """
import random
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, random_split
from torchvision import datasets, transforms
from tqdm import tqdm

before = random.getstate(), np.random.get_state()[1].tobytes()
torch.manual_seed(0)
change = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5,), (0.25,))])
data = datasets.MNIST("data", train=True, download=True, transform=change)
test = datasets.MNIST("data", train=False, transform=change)
assert (random.getstate(), np.random.get_state()[1].tobytes()) == before
assert data.data.shape == (2048, 28, 28) and data.data.dtype == torch.uint8
train, valid = random_split(data, [50000, 10000])
assert len(train) + len(valid) == 2048
assert Subset(data, range(50000))[49999][1] in range(10)
assert len(list(test)) == 512
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in tqdm(DataLoader(train, batch_size=64, shuffle=True, num_workers=2)):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
x, y = next(iter(DataLoader(test, batch_size=512)))
print("right", float((model(x).argmax(1) == y).float().mean()), loss.item())
"""


def test_a_script_learns_from_stand_in_data_and_every_process_gets_the_same(run: Runs):
    facts = run(TRAIN)
    assert facts == [
        "tqdm: not installed, a small stand-in",
        "MNIST: stand-in data, 2,048 samples of 1x28x28",
        "MNIST: stand-in data, 512 samples of 1x28x28",
    ]
    first = run.said
    # Chance is 0.1.
    assert float(first.split()[1]) > 0.5
    assert run(TRAIN, hide="") == facts[1:]
    assert run.said.splitlines()[-1:] == first.splitlines()


DATASETS = """
import numpy as np
from torchvision import datasets
from torchvision.transforms import ToTensor

def shape(data):
    image, target = data[3]
    assert len(data) in (2048, 512)
    return tuple(ToTensor()(image).shape), image.mode

for name in ("MNIST", "FashionMNIST", "KMNIST", "QMNIST"):
    data = getattr(datasets, name)("data", train=False, download=True)
    assert shape(data) == ((1, 28, 28), "L") and len(data.classes) == 10 and len(data) == 512
assert datasets.QMNIST("data", compat=False)[0][1].shape == (8,)
letters = datasets.EMNIST("data", split="letters", train=True)
assert len(letters.classes) == 27 and sorted(set(letters.targets.tolist())) == list(range(1, 27))
for name, classes in (("CIFAR10", 10), ("CIFAR100", 100)):
    data = getattr(datasets, name)("data", target_transform=lambda y: -y)
    assert shape(data) == ((3, 32, 32), "RGB") and data.data.shape == (2048, 32, 32, 3)
    assert set(data.targets) == set(range(classes)) and data[3][1] == -data.targets[3]
assert datasets.SVHN("data", split="extra").data.shape == (2048, 3, 32, 32)
assert shape(datasets.STL10("data", split="test")) == ((3, 96, 96), "RGB")
assert set(datasets.STL10("data", split="unlabeled").labels) == {-1}
assert shape(datasets.ImageNet("data", split="val")) == ((3, 256, 256), "RGB")
folder = datasets.ImageFolder("data/train")
assert shape(folder) == ((3, 256, 256), "RGB") and folder.classes == ["0", "1"]
faces = datasets.CelebA("data", target_type=["attr", "identity"], download=True)
assert shape(faces) == ((3, 218, 178), "RGB") and faces[0][1][0].shape == (40,)
assert shape(datasets.LSUN("data", classes=["bedroom_train"])) == ((3, 256, 256), "RGB")
fake = datasets.FakeData(7, (3, 8, 9), 5)
assert len(fake) == 7 and ToTensor()(fake[6][0]).shape == (3, 8, 9)

class Mine(datasets.CIFAR10):
    def __getitem__(self, index):
        image, target = super().__getitem__(index)
        return np.asarray(image), target, index

assert Mine("data")[5][0].shape == (32, 32, 3)
try:
    datasets.DatasetFolder("data", loader=np.load, extensions=(".npy",))
except FileNotFoundError:
    pass
else:
    raise AssertionError("nobody can know what these files hold")
"""


def test_data_sets_have_the_shapes_and_classes_of_the_real_ones(run: Runs):
    facts = run(DATASETS)
    assert "CelebA: stand-in data, 2,048 samples of 3x218x178" in facts
    assert not any("FakeData" in fact or "DatasetFolder" in fact for fact in facts)


IMAGES = """
import os
import numpy as np
from PIL import Image
from torchvision import datasets
for number in range(6):
    os.makedirs(f"photos/{'ab'[number % 2]}", exist_ok=True)
    Image.fromarray(np.zeros((5, 7), np.uint8)).save(f"photos/{'ab'[number % 2]}/{number}.png")
photos = datasets.ImageFolder("photos")
assert len(photos) == 6 and photos.classes == ["a", "b"] and photos.targets == [0, 0, 0, 1, 1, 1]
assert photos[5][0].size == (7, 5) and photos[5][0].mode == "RGB"
"""


def test_a_folder_of_images_that_is_there_is_read(run: Runs):
    assert run(IMAGES) == []


WEIGHTS = """
import torch
import torchvision
from torchvision import models, transforms, utils
from torchvision.models import ResNet18_Weights

torch.manual_seed(1)
one = models.resnet18(weights=ResNet18_Weights.DEFAULT).state_dict()
torch.manual_seed(2)
model = models.resnet18(weights="IMAGENET1K_V1")
two = model.state_dict()
assert all(torch.equal(one[key], two[key]) for key in one)
other = models.resnet18(num_classes=3)
assert not torch.equal(other.conv1.weight, model.conv1.weight)
other.load_state_dict(other.state_dict())
x = torch.randn(2, 3, 64, 64)
assert other(x).shape == (2, 3) and model(x).std() > 0
change = transforms.Compose([transforms.ToPILImage(), ResNet18_Weights.DEFAULT.transforms()])
assert change(x[0]).shape == (3, 224, 224)
utils.save_image(torch.rand(9, 3, 8, 8), "grid.png")
try:
    torchvision.ops.nms(torch.rand(3, 4), torch.rand(3), 0.5)
except RuntimeError as error:
    assert "C++ ops" in str(error)
"""


def test_models_get_random_weights_where_the_pretrained_ones_were_never_downloaded(
    run: Runs, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TORCH_HOME", str(run.place / "cache"))
    assert run(WEIGHTS) == ["ResNet18_Weights.IMAGENET1K_V1: random weights for pretrained ones"]
    assert (run.place / "grid.png").exists()


CACHED = """
import torch
from torchvision import models

model = models.resnet18()
folder = torch.hub.get_dir() + "/checkpoints"
__import__("os").makedirs(folder)
torch.save(model.state_dict(), folder + "/resnet18-f37072fd.pth")
again = models.resnet18(weights=models.ResNet18_Weights.IMAGENET1K_V1)
assert torch.equal(again.conv1.weight, model.conv1.weight)
"""


def test_weights_that_were_downloaded_are_used(run: Runs, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCH_HOME", str(run.place / "cache"))
    assert run(CACHED) == []


SILENT = """
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.axes_grid1 import ImageGrid
import mlflow
import mlflow.pytorch
import tensorboardX
import tqdm
import torch
import visdom
import wandb
from torch.utils.tensorboard import SummaryWriter
from tqdm.auto import tqdm as bar, trange

fig, ax = plt.subplots(1, 2, figsize=(4, 2))
ax[0].imshow([[0]])
(line,) = ax[1].plot([1, 2], label="loss")
counts, edges, patches = plt.hist([1])
for axis in ax.flatten():
    axis.axis("off")
plt.rcParams["font.size"] = 3
plt.savefig("loss.png")
with SummaryWriter("runs/one") as writer:
    writer.add_scalar("loss", 1.0, 0)
    torch.save({}, writer.log_dir + "/last.pt")

class Board(tensorboardX.SummaryWriter):
    def add(self, value):
        self.add_scalar("x", value)
        return value

assert Board("runs/two").add(3) == 3
run = wandb.init(project="p", config={"lr": 0.1})
wandb.config.update({"epochs": 2})
assert wandb.config.lr == run.config["lr"] == 0.1 and wandb.config.epochs == 2
wandb.log({"loss": 1})
wandb.watch(torch.nn.Linear(1, 1))
wandb.finish()
with mlflow.start_run():
    mlflow.log_metric("loss", 1)
    mlflow.pytorch.log_model(None, "model")
window = visdom.Visdom().line(Y=[1])
with bar(range(3), desc="x") as progress:
    assert list(progress) == [0, 1, 2] and progress.n == 3 and len(progress) == 3
    progress.set_postfix(loss=1)
assert [i for i in trange(2)] == [0, 1] and sum(tqdm.tqdm(iter([1, 2]), total=2)) == 3
hand = tqdm.tqdm(total=5)
hand.update(2)
hand.close()
tqdm.tqdm.write("a line")
"""


def test_libraries_that_show_and_log_take_every_call(run: Runs):
    facts = run(SILENT)
    names = [fact.partition(":")[0] for fact in facts]
    assert set(names) == {
        *("matplotlib", "mpl_toolkits", "mlflow", "tensorboardX", "tqdm", "visdom", "wandb"),
        "torch.utils.tensorboard",
    }
    assert run.said == "a line\n"
    assert not (run.place / "loss.png").exists()


FILES = """
import gzip, os
from pathlib import Path
import numpy as np

path = "data/wikitext-2/train.txt"
assert os.path.exists(path) and Path(path).is_file()
with open(path, encoding="utf8") as file:
    words = [word for line in file for word in line.split() + ["<eos>"]]
assert 20_000 <= len(words) < 25_000
held = set(Path("data/wikitext-2/valid.txt").read_text().split())
assert held <= set(words) and Path("input.txt").read_text() != Path("test.txt").read_text()
tokens = np.memmap("data/shakespeare/train.bin", dtype=np.uint16, mode="r")
assert tokens.ndim == 1 and tokens.max() < 128 and len(tokens) > 50_000
with gzip.open("MNIST/train-images-idx3-ubyte.gz", "rb") as file:
    images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
with open("MNIST/t10k-labels-idx1-ubyte", "rb") as file:
    labels = np.frombuffer(file.read(), np.uint8, offset=8)
assert images.shape == (2048, 28, 28) and labels.shape == (512,) and set(labels) == set(range(10))
with np.load("mnist.npz") as arrays:
    assert np.array_equal(arrays["x_train"], images) and np.array_equal(arrays["y_test"], labels)
assert os.popen("stty size", "r").read().split() == ["24", "80"]
assert os.popen("echo 1").read() == "1\\n"
assert not Path("data").exists() and not Path("input.txt").is_dir()
for load, name in ((np.load, "a.npy"), (open, "a.csv"), (lambda n: open(n, "r+"), "train.txt")):
    try:
        load(name)
    except FileNotFoundError:
        pass
    else:
        raise AssertionError("nobody can know what this file holds")
"""


def test_files_whose_name_tells_what_they_hold_are_replaced_and_no_others(run: Runs):
    assert run(FILES, hide="") == [
        "train.txt: a stand-in text of 20,000 words",
        "valid.txt: a stand-in text of 20,000 words",
        "input.txt: a stand-in text of 20,000 words",
        "test.txt: a stand-in text of 20,000 words",
        "train.bin: the characters of a stand-in text as 16-bit tokens",
        "train-images-idx3-ubyte.gz: stand-in data, 2,048 samples of 1x28x28",
        "t10k-labels-idx1-ubyte: stand-in data, 512 samples of 1x28x28",
        "mnist.npz: stand-in data, 2,048 and 512 samples of 1x28x28",
    ]


HERE = """
import os, pickle
import numpy as np
from torchvision import datasets
from torchvision.datasets import CIFAR10

folder = "here/cifar-10-batches-py"
os.makedirs(folder)
for base in (CIFAR10.train_list, CIFAR10.test_list):
    for name, _ in base:
        with open(f"{folder}/{name}", "wb") as file:
            pickle.dump({"data": np.zeros((3, 3072), np.uint8), "labels": [1, 2, 3]}, file)
with open(f"{folder}/batches.meta", "wb") as file:
    pickle.dump({"label_names": list("abcdefghij")}, file)
datasets.cifar.check_integrity = lambda path, md5=None: os.path.exists(path)
data = CIFAR10("here", train=False, download=True)
assert len(data) == 3 == len(list(data)) and data[1][1] == 2
data = CIFAR10("nowhere", train=False, download=True, transform=lambda image: image.size)
assert len(data) == 512 and data[0][0] == (32, 32) and data[9999][1] in range(10)
assert data.train is False and data.root == "nowhere" and len(data.classes) == 10
net = datasets.ImageNet("nowhere", split="val", transform=lambda image: image.size)
assert len(net) == 512 and net[0][0] == (256, 256)
try:
    CIFAR10("nowhere", size=3)
except TypeError:
    pass
else:
    raise AssertionError("an argument that it does not have")
"""


def test_data_sets_that_are_missing_get_stand_in_data_and_others_are_left_alone(run: Runs):
    assert run(HERE) == [
        "CIFAR10: stand-in data, 512 samples of 3x32x32",
        "ImageNet: stand-in data, 512 samples of 3x256x256",
    ]


def test_the_notes_name_each_stand_in_once(run: Runs):
    run("import torch\nfor _ in range(3):\n    open('train.txt')\n", hide="")
    lines = [
        json.loads(line)
        for path in run.folder.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert sum(line["kind"] == "fake_data" for line in lines) == 1
