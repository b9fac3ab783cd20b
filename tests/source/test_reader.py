"""What the reader knows of names and of where values come from."""

from __future__ import annotations

import textwrap
from pathlib import Path

import libcst as cst
import pytest

from lockstep.source.programs import programs
from lockstep.source.project import Project
from lockstep.source.reading import read_script
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import constant

DDP = "torch.nn.parallel.DistributedDataParallel"
LOADER = "torch.utils.data.DataLoader"


def project(folder: Path, **sources: str) -> Project:
    """A program of several files; `main` is where it starts. `a__b` lies in folder a."""
    for name, source in sources.items():
        path = folder / (name.replace("__", "/").replace("INIT", "__init__") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
    (folder / ".git").mkdir(exist_ok=True)
    start = next(n for n in sources if n.split("__")[-1] == "main")
    return programs([read_script(folder / (start.replace("__", "/") + ".py"))])[0]


def asked(found: Project) -> tuple[Script, cst.CSTNode]:
    """What stands in `ask(...)`."""
    for script in found.scripts:
        for call in script.calls:
            if isinstance(call.func, cst.Name) and call.func.value == "ask":
                return script, call.args[0].value
    raise AssertionError("nothing asked")


def name(found: Project) -> str | None:
    return found.name(*asked(found))


def origins(found: Project) -> set[str]:
    """Calls by their names in full and their first argument, everything else by its text."""
    shown = set()
    for origin in found.origins(*asked(found)):
        text = origin.script.code(origin.node)
        if origin.call is not None:
            called = found.name(origin.script, origin.call.func)
            first = origin.script.code(origin.call.args[0].value) if origin.call.args else ""
            text = f"{called}({first})"
        shown.add(text + "".join(f"[{i}]" for i in origin.index))
    return shown


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("from torch.nn.parallel import DistributedDataParallel as DDP\nask(DDP)", DDP),
        ("import torch.nn.parallel as p\nask(p.DistributedDataParallel)", DDP),
        ("import torch\nask(torch.nn.parallel.DistributedDataParallel)", DDP),
        ("import torch.nn.parallel\nask(torch.nn.parallel.DistributedDataParallel)", DDP),
        ("from torch import nn\nask(nn.parallel.DistributedDataParallel)", DDP),
        ("from torch.nn import parallel as par\nask(par.DistributedDataParallel)", DDP),
        ("from torch.nn.parallel import *\nask(DistributedDataParallel)", DDP),
        ("import torch as t\nD = t.nn.parallel.DistributedDataParallel\nask(D)", DDP),
        ("import torch\nnn = torch.nn\nask(nn.parallel.DistributedDataParallel)", DDP),
        (
            "try:\n    from apex.parallel import DistributedDataParallel as DDP\n"
            "except ImportError:\n    from torch.nn.parallel import DistributedDataParallel as "
            "DDP\nask(DDP)",
            DDP,
        ),
        (
            "try:\n    from torch.nn.parallel import DistributedDataParallel as DDP\n"
            "except ImportError:\n    DDP = None\nask(DDP)",
            DDP,
        ),
        (
            "def f():\n    from torch.nn.parallel import DistributedDataParallel\n"
            "    ask(DistributedDataParallel)",
            DDP,
        ),
        (
            "from functools import partial\nfrom torch.nn.parallel import "
            "DistributedDataParallel as D\nwrap = partial(D, device_ids=[0])\nask(wrap)",
            DDP,
        ),
        ("def DataLoader(): pass\nask(DataLoader)", "./main.py:DataLoader"),
        ("class DataLoader: pass\nask(DataLoader)", "./main.py:DataLoader"),
        ("ask(unknown)", None),
        ("x = x\nask(x)", None),
        ("a = b\nb = a\nask(a)", None),
        ("ask(f().g)", None),
    ],
)
def test_a_name_is_known_in_full(tmp_path, lines, wanted):
    assert name(project(tmp_path, main=lines)) == wanted


def test_a_parameter_hides_an_import(tmp_path):
    found = project(tmp_path, main="import torch\ndef f(torch):\n    ask(torch.save)\n")
    assert name(found) is None


def test_a_star_import_goes_through_the_modules_of_the_project(tmp_path):
    found = project(
        tmp_path,
        main="from helpers import *\nask(DDP)",
        helpers="from deeper import *",
        deeper="from torch.nn.parallel import DistributedDataParallel as DDP",
    )
    assert name(found) == DDP


def test_modules_that_import_each_other_come_to_an_end(tmp_path):
    found = project(
        tmp_path,
        main="from other import thing\nask(thing)\nthing()",
        other="from main import thing\nfrom main import *",
    )
    assert name(found) in (None, "main.thing", "other.thing")
    assert found.definition(*asked(found)) is None
    assert found.origins(*asked(found))
    stars = project(tmp_path, main="from other import *\nask(thing)", other="from main import *")
    assert name(stars) is None
    assert stars.origins(*asked(stars))


@pytest.mark.parametrize(
    "statement",
    [
        "from .data import make",
        "from . import data\nmake = data.make",
        "from .inner import make",
        "from .inner.deep import make",
        "from package.data import make",
        "from package import make",
        "import package.data as d\nmake = d.make",
        "import package.data\nmake = package.data.make",
    ],
)
def test_imports_in_a_package_are_found(tmp_path, statement):
    found = project(
        tmp_path,
        package__main=f"{statement}\nask(make(1))",
        package__INIT="from .data import make",
        package__data="from torch.utils.data import DataLoader\n"
        "def make(n):\n    return DataLoader(n)\n",
        package__inner__INIT="from ..data import make",
        package__inner__deep="from ...package.data import make",
    )
    assert origins(found) == {f"{LOADER}(n)"}


IMPORT = "from torch.utils.data import DataLoader\n"


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("x = DataLoader(a)\nask(x)", {f"{LOADER}(a)"}),
        ("x, y = DataLoader(a), DataLoader(b)\nask(y)", {f"{LOADER}(b)"}),
        ("def f():\n    return DataLoader(a), DataLoader(b)\nx, y = f()\nask(y)", {f"{LOADER}(b)"}),
        ("def f():\n    return DataLoader(a), DataLoader(b)\nask(f()[1])", {f"{LOADER}(b)"}),
        (
            "def g():\n    t = DataLoader(a)\n    v = DataLoader(b)\n    return t, v\n"
            "def f():\n    return g()\nx, _ = f()\nask(x)",
            {f"{LOADER}(a)"},
        ),
        ("x = DataLoader(a) if c else DataLoader(b)\nask(x)", {f"{LOADER}(a)", f"{LOADER}(b)"}),
        (
            "if c:\n    x = DataLoader(a)\nelse:\n    x = DataLoader(b)\nask(x)",
            {f"{LOADER}(a)", f"{LOADER}(b)"},
        ),
        ("if (x := DataLoader(a)):\n    ask(x)", {f"{LOADER}(a)"}),
        ("ask((x := DataLoader(a)))", {f"{LOADER}(a)"}),
        ("with DataLoader(a) as x:\n    ask(x)", {f"{LOADER}(a)"}),
        ("x: object = DataLoader(a)\nask(x)", {f"{LOADER}(a)"}),
        ("def f(x):\n    ask(x)\nf(DataLoader(a))", {f"{LOADER}(a)"}),
        ("def f(*, x=None):\n    ask(x)\nf(x=DataLoader(a))", {f"{LOADER}(a)"}),
        ("def f(x=DataLoader(a)):\n    ask(x)\nf()", {f"{LOADER}(a)"}),
        ("@decorated\ndef f(x):\n    ask(x)\nf(DataLoader(a))", {f"{LOADER}(a)"}),
        ("@decorated(1)\ndef f():\n    return DataLoader(a)\nask(f())", {f"{LOADER}(a)"}),
        (
            "def f():\n    x = DataLoader(a)\n    def g():\n        ask(x)\n    g()",
            {f"{LOADER}(a)"},
        ),
        (
            "def f():\n    x = None\n    def g():\n        nonlocal x\n        x = DataLoader(a)\n"
            "    g()\n    ask(x)",
            {"None", f"{LOADER}(a)"},
        ),
        ("def f():\n    global x\n    x = DataLoader(a)\nf()\nask(x)", {f"{LOADER}(a)"}),
        ("f = lambda d: DataLoader(d)\nask(f(1))", {f"{LOADER}(d)"}),
        ("def f():\n    g = lambda x: ask(x)\n    g(DataLoader(a))\nf(x=1)", {"x"}),
        ("def f():\n    return DataLoader(a)\ng = f\nask(g())", {f"{LOADER}(a)"}),
        (
            "if c:\n    def f():\n        return DataLoader(a)\nelse:\n    def f():\n"
            "        return DataLoader(b)\nask(f())",
            {f"{LOADER}(a)", f"{LOADER}(b)"},
        ),
        ("def f(n):\n    return f(n - 1) if n else DataLoader(a)\nask(f(3))", {f"{LOADER}(a)"}),
        ("def f(x):\n    return f(x)\nask(f(1))", None),
        (
            "async def f():\n    return DataLoader(a)\nasync def g():\n    ask(await f())",
            {f"{LOADER}(a)"},
        ),
        ("x, *y = DataLoader(a), 1, 2\nask(x)", {f"{LOADER}(a)"}),
        ("*x, y = 1, 2, DataLoader(a)\nask(y)", {"y"}),
        ("x = [DataLoader(a), DataLoader(b)]\nask(x[1])", {f"{LOADER}(b)"}),
    ],
)
def test_a_value_is_followed(tmp_path, lines, wanted):
    found = origins(project(tmp_path, main=IMPORT + lines))
    if wanted is not None:
        assert found == wanted


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ('d = {"train": DataLoader(a), "val": DataLoader(b)}\nask(d["train"])', {"a"}),
        ('d = {"train": DataLoader(a), "val": DataLoader(b)}\nask(d[phase])', {"a", "b"}),
        ('d = dict(train=DataLoader(a), val=DataLoader(b))\nask(d["val"])', {"b"}),
        ('d = {}\nd["train"] = DataLoader(a)\nd["val"] = DataLoader(b)\nask(d["val"])', {"b"}),
        ('d = {}\nd["train"] = DataLoader(a)\nd["val"] = DataLoader(b)\nask(d[p])', {"a", "b"}),
        ('d = {p: DataLoader(s[p]) for p in ("train", "val")}\nask(d["val"])', {"s[p]"}),
        ('def f():\n    return {"train": DataLoader(a)}, 1\nd, _ = f()\nask(d["train"])', {"a"}),
        ('def f(d):\n    ask(d["train"])\nf({"train": DataLoader(a)})', {"a"}),
        ('d = {"x": {"y": DataLoader(a)}}\nask(d["x"]["y"])', {"a"}),
        (
            'class T:\n    def __init__(self):\n        self.d = {"train": DataLoader(a)}\n'
            '    def f(self):\n        ask(self.d["train"])',
            {"a"},
        ),
        (
            "class T:\n    def __init__(self):\n        self.d = {}\n"
            '        self.d["train"] = DataLoader(a)\n'
            '    def f(self):\n        ask(self.d["train"])',
            {"a"},
        ),
        ("t, v = DataLoader(a), DataLoader(b)\nfor x in (t, v):\n    ask(x)", {"a", "b"}),
        (
            'd = {"t": DataLoader(a), "v": DataLoader(b)}\nfor k, x in d.items():\n    ask(x)',
            {"a", "b"},
        ),
        ('d = {"t": DataLoader(a)}\nfor x in d.values():\n    ask(x)', {"a"}),
        ("for n, x in [(1, DataLoader(a)), (2, DataLoader(b))]:\n    ask(x)", {"a", "b"}),
    ],
)
def test_containers_of_loaders_are_seen_through(tmp_path, lines, wanted):
    found = origins(project(tmp_path, main=IMPORT + lines))
    assert found == {f"{LOADER}({text})" for text in wanted}


def test_a_key_that_is_not_in_sight_leaves_the_expression(tmp_path):
    for lines in ('ask(batch["image"])', 'd = {"a": 1}\nask(d["b"])', "d = load()\nask(d[key])"):
        text = lines.splitlines()[-1][4:-1]
        assert origins(project(tmp_path, main=lines)) == {text}


def test_a_batch_is_not_the_loader(tmp_path):
    found = project(tmp_path, main=IMPORT + "loader = DataLoader(a)\nfor x in loader:\n    ask(x)")
    assert origins(found) == {"x"}


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("class C:\n    lr = 0.1\nask(C.lr)", {"0.1"}),
        ("class C:\n    lr = 0.1\nc = C()\nask(c.lr)", {"0.1"}),
        ("class C:\n    lr: float = 0.1\nc = C(lr=0.5)\nask(c.lr)", {"0.5"}),
        ("class C:\n    lr = 0.1\nclass D(C):\n    pass\nask(D().lr)", {"0.1"}),
        ("class C:\n    lr = 0.1\n    def f(self):\n        ask(self.lr)", {"0.1"}),
        (
            "class C:\n    def __init__(self, lr):\n        self.lr = lr\nc = C(0.2)\nask(c.lr)",
            {"0.2"},
        ),
        (
            "class C:\n    def __init__(self, lr):\n        self.lr = lr\n"
            "class D(C):\n    def f(self):\n        ask(self.lr)\nD(0.3)",
            {"lr"},
        ),
        ("class C:\n    def f(self, x):\n        ask(x)\nc = C()\nc.f(7)", {"7"}),
        ("class C:\n    def f(self, x):\n        ask(x)\nC().f(7)", {"7"}),
        (
            "class C:\n    def f(self, x):\n        ask(x)\nclass D:\n    def __init__(self):\n"
            "        self.c = C()\n    def g(self):\n        self.c.f(8)",
            {"8"},
        ),
        ("class C:\n    @staticmethod\n    def f(x):\n        ask(x)\nC.f(9)", {"9"}),
        ("class C:\n    @classmethod\n    def f(cls, x):\n        ask(x)\nC.f(9)", {"9"}),
    ],
)
def test_attributes_of_classes_are_found(tmp_path, lines, wanted):
    assert origins(project(tmp_path, main=lines)) == wanted


@pytest.mark.parametrize(
    ("flag", "wanted"),
    [
        ('"--batch-size", type=int, default=32', "32"),
        ('"-b", "--batch_size", default=16', "16"),
        ('"--bs", dest="batch_size", default=8', "8"),
        ('"--batch_size", action="store_true"', "False"),
        ('"--other", default=1', "args.batch_size"),
    ],
)
def test_arguments_of_the_command_line_have_their_defaults(tmp_path, flag, wanted):
    lines = f"import argparse\np = argparse.ArgumentParser()\np.add_argument({flag})\n"
    found = project(tmp_path, main=lines + "args = p.parse_args()\nask(args.batch_size)")
    assert origins(found) == {wanted}


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        ("mp.spawn(worker, args=(2, loader), nprocs=2)", {f"{LOADER}(a)"}),
        ("mp.spawn(fn=worker, nprocs=2, args=(2, loader))", {f"{LOADER}(a)"}),
        ("given = (2, loader)\nmp.spawn(worker, given, 2)", {f"{LOADER}(a)"}),
        ("mp.start_processes(worker, args=(2, loader))", {f"{LOADER}(a)"}),
        ("mp.Process(target=worker, args=(0, 2, loader)).start()", {f"{LOADER}(a)"}),
        (
            "run = functools.partial(worker, loader=loader)\nmp.spawn(run, args=(2,))",
            {f"{LOADER}(a)"},
        ),
        ("functools.partial(worker, 0, 2, loader)()", {f"{LOADER}(a)"}),
        (
            "c = mp.get_context('spawn')\nc.Process(target=worker, args=(0, 2, loader))",
            {f"{LOADER}(a)", "loader"},
        ),
        ("mp.spawn(worker, args=(2,))", {"loader"}),
        ("mp.spawn(worker, args=(*given, loader))", {"loader"}),
    ],
)
def test_spawned_functions_get_their_arguments(tmp_path, start, wanted):
    lines = (
        IMPORT + "import functools\nimport torch.multiprocessing as mp\n"
        "def worker(rank, world_size, loader):\n    ask(loader)\n"
        f"loader = DataLoader(a)\n{start}\n"
    )
    assert origins(project(tmp_path, main=lines)) <= wanted


def test_a_spawned_function_of_another_module_trains(tmp_path):
    found = project(
        tmp_path,
        main=IMPORT + "import torch.multiprocessing as mp\nimport work\n"
        "mp.spawn(work.run, args=(DataLoader(a),))\n",
        work="def run(rank, loader):\n    for x in loader:\n        x.sum().backward()\n",
    )
    (loader,) = Training(found).loaders
    assert [loop.trains for loop in loader.loops] == [True]


def test_a_loop_over_loaders_by_phase_reads_all_of_them(tmp_path):
    lines = IMPORT + (
        'loaders = {"train": DataLoader(a), "val": DataLoader(b)}\n'
        'for phase in ["train", "val"]:\n    for i, x in enumerate(loaders[phase]):\n        pass\n'
    )
    assert [len(x.loops) for x in Training(project(tmp_path, main=lines)).loaders] == [1, 1]


@pytest.mark.parametrize(
    ("lines", "framework"),
    [
        ("import transformers\ntransformers.Trainer()", "Hugging Face Trainer"),
        ("import transformers as t\nclass T(t.Seq2SeqTrainer): pass", "Hugging Face Trainer"),
        ("from transformers import AutoModel", None),
        ("def f():\n    from accelerate import Accelerator", "Accelerate"),
        ("import lightning.pytorch as pl", "Lightning"),
        ("from ray import train", "Ray Train"),
        ("import accelerated_things", None),
    ],
)
def test_frameworks_are_recognised(tmp_path, lines, framework):
    assert Training(project(tmp_path, main=lines)).framework == framework


def test_a_long_chain_of_elif_is_read(tmp_path):
    lines = "if a:\n    pass\n" + "elif a:\n    pass\n" * 1500 + "ask(a)\n"
    assert origins(project(tmp_path, main=lines)) == {"a"}


def test_constants_are_not_lost_on_the_way(tmp_path):
    found = project(tmp_path, main="class C:\n    deep = {'x': [1, -2]}\nask(C.deep['x'][1])")
    (origin,) = found.origins(*asked(found))
    assert constant(origin.node) == -2
