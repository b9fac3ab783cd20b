"""Code that several ranks never reach is told from code that they do."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest

from lockstep.source.project import Project
from lockstep.source.ranks import guarded
from lockstep.source.reading import parse, read_script
from lockstep.source.training import Training
from lockstep.source.tree import constant

HEAD = "import os\nimport sys\nimport torch\nimport torch.distributed as dist\n"


def project(text: str, *, several_ranks: bool = True) -> Project:
    return Project([parse(Path("script.py"), HEAD + text)], several_ranks=several_ranks)


def runs(text: str, *, several_ranks: bool = True) -> bool:
    """Return whether the call `here()` runs."""
    whole = project(text, several_ranks=several_ranks)
    script = whole.scripts[0]
    call = next(c for c in script.calls if script.code(c) == "here()")
    return whole.runs(script, call)


ALONE = [
    "not args.distributed", "not distributed", "not cfg.TRAIN.ddp", "not self.use_ddp",
    "args.distributed is False", "args.ddp == False", "world_size == 1", "args.world_size < 2",
    "dist.get_world_size() <= 1", "local_rank == -1", "args.local_rank < 0",
    "'RANK' not in os.environ", "not dist.is_initialized()", "not is_dist_avail_and_initialized()",
    "int(os.environ['WORLD_SIZE']) == 1", "int(os.environ.get('RANK', -1)) == -1",
    "train and not args.distributed", "False", "None",
]  # fmt: skip
OPEN = [
    "args.resume", "args.world_size > 8", "rank == 0", "args.local_rank == 0", "x is None",
    "dist_to_center > 1", "distance", "not args.amp", "args.n_gpu > 1",
]  # fmt: skip


@pytest.mark.parametrize("test", ALONE)
def test_a_branch_for_one_process_is_not_reached_and_its_else_is(test: str):
    assert not runs(f"if {test}:\n    here()\n")
    assert runs(f"if {test}:\n    pass\nelse:\n    here()\n")
    # For a program on one GPU, nothing is decided.
    assert runs(f"if {test}:\n    here()\n", several_ranks=False)


@pytest.mark.parametrize("test", OPEN)
def test_a_condition_that_may_or_may_not_hold_decides_nothing(test: str):
    assert runs(f"if {test}:\n    here()\n")
    assert runs(f"if {test}:\n    pass\nelse:\n    here()\n")


def test_code_after_an_early_return_is_not_reached():
    text = "def f():\n    if {}:\n        return\n    here()\nf()\n"
    assert not runs(text.format("args.distributed"))
    assert runs(text.format("not args.distributed"))
    # This asks whether the ranks have joined before, and then joins them.
    assert runs(text.format("dist.is_initialized()"))


def test_functions_that_only_call_each_other_are_not_reached_and_found_so_in_time():
    names = [f"f{number}" for number in range(12)]
    calls = "".join(f"    {name}()\n" for name in names)
    text = "".join(f"def {name}():\n{calls}" for name in names) + "    here()\n"
    assert not runs(text + "print(1)\nif __name__ == '__main__':\n    pass\n")
    assert runs(text + "f3()\n")


@pytest.mark.parametrize(
    "change",
    ["exec(open('c.py').read())", "*_, flag = 1, True", "match x:\n    case flag: pass"],
)
def test_a_name_that_may_change_is_not_fixed(change: str):
    assert not runs("flag = False\nif flag:\n    here()\n")
    assert runs(f"flag = False\n{change}\nif flag:\n    here()\n")


def test_an_argument_that_a_child_gives_counts():
    base = (
        "class Base:\n    def __init__(self, write=False):\n        if write:\n            here()\n"
    )
    child = "class Child(Base):\n    def __init__(self):\n        super().__init__(write=True)\n"
    assert not runs(base + "Base()\n")
    assert runs(base + child + "Base()\nChild()\n")


def test_functions_that_nothing_calls_are_not_reached():
    start = "if __name__ == '__main__':\n    main()\n"
    assert not runs("def main(): pass\ndef old():\n    here()\n" + start)
    assert runs("def main():\n    old()\ndef old():\n    here()\n" + start)
    assert runs("def main():\n    go(old)\ndef old():\n    here()\n" + start)
    # A library starts nothing, and may be called by anybody.
    assert runs("def main():\n    here()\n")


def test_a_constant_argument_closes_a_branch_and_another_opens_it():
    text = "def build(path=None):\n    if path:\n        here()\n"
    assert not runs(text + "build()\nbuild(path='')\n")
    assert runs(text + "build()\nbuild('a')\n")
    assert runs(text + "build(**kwargs)\n")


def test_the_flag_under_which_the_model_is_wrapped_holds():
    wrap = "if args.nodes_given:\n    model = torch.nn.parallel.DistributedDataParallel(model)\n"
    assert not runs(wrap + "if not args.nodes_given:\n    here()\n")
    both = wrap + "else:\n    model = torch.nn.parallel.DistributedDataParallel(model)\n"
    assert runs(both + "if not args.nodes_given:\n    here()\n")


def test_a_value_that_is_replaced_on_several_ranks_is_not_meant():
    text = "sampler = None\nif args.distributed:\n    sampler = make()\nuse(sampler)\n"
    for several, found in ((True, [...]), (False, [None, ...])):
        whole = project(text, several_ranks=several)
        script = whole.scripts[0]
        call = next(c for c in script.calls if script.code(c).startswith("use"))
        origins = whole.origins(script, call.args[0].value)
        assert [constant(o.node) for o in origins] == found


LOADERS = """
from torch.utils.data import DataLoader, DistributedSampler

def make(data, train):
    sampler = DistributedSampler(data) if train else None
    return DataLoader(data, 8, sampler=sampler, drop_last=train)

train_loader = make(a, True)
test_loader = make(b, train=False)
"""


def test_a_function_that_makes_loaders_is_judged_for_each_call():
    found = Training(project(LOADERS)).loaders
    assert {one.name: one.gets("sampler") for one in found} == {
        "train_loader": True,
        "test_loader": False,
    }
    assert {one.name: one.constants("drop_last") for one in found} == {
        "train_loader": [True],
        "test_loader": [False],
    }


KINDS = {
    "a class": "class Mine(DataLoader):\n    def __init__(self, data):\n"
    "        super().__init__(data, sampler=DistributedSampler(data))\nx = Mine(d)\n",
    "its child": "class Base(DataLoader):\n    def __init__(self, data):\n"
    "        super().__init__(data, sampler=DistributedSampler(data))\n"
    "class Mine(Base):\n    pass\nx = Mine(d)\n",
    "keywords": "x = DataLoader(d, **{'sampler': DistributedSampler(d)})\n",
    "a dict": "options = dict(sampler=DistributedSampler(d))\nx = DataLoader(d, **options)\n",
    "filled": "options = {}\noptions['sampler'] = DistributedSampler(d)\n"
    "x = DataLoader(d, **options)\n",
}
WAYS = {
    "a loop": "for b in x:\n    step(b).backward()\n",
    "enumerate": "for i, b in enumerate(x):\n    step(b).backward()\n",
    "a generator": "def forever(x):\n    while True:\n        yield from x\n"
    "for b in forever(x):\n    step(b).backward()\n",
    "next": "it = iter(x)\nfor i in range(9):\n    step(next(it)).backward()\n",
    "a bar of itself": "from tqdm import tqdm\nx = tqdm(x)\nfor b in x:\n    step(b).backward()\n",
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_loaders_are_known_however_they_are_made_and_read(kind: str, way: str):
    head = "from torch.utils.data import DataLoader, DistributedSampler\n"
    (one,) = Training(project(head + kind + way)).loaders
    assert one.gets("sampler")
    assert one.trains


def test_a_loader_whose_arguments_nobody_sees_is_unclear():
    head = "from torch.utils.data import DataLoader\n"
    (one,) = Training(project(head + "x = DataLoader(d, **options())\n")).loaders
    assert one.unclear


GUARDED = [
    "self.main = dist.get_rank() == 0\nif self.main:\n    here()\n",
    "writer = None\nif dist.get_rank() == 0:\n    writer = make()\nif writer is not None:\n"
    "    here()\n",
    "for x in y:\n    if step % 10 or dist.get_rank():\n        continue\n    here()\n",
    "def f(main):\n    if not main:\n        return\n    here()\nf(dist.get_rank() == 0)\n",
    "class Saver:\n    def __call__(self):\n        here()\nif rank == 0:\n    save = Saver()\n"
    "    save()\n",
]
UNGUARDED = [
    "if args.save:\n    here()\n",
    "writer = make()\nif writer is not None:\n    here()\n",
    "def f(main):\n    if not main:\n        return\n    here()\nf(rank == 0)\nf(main=True)\n",
    "class Saver:\n    def __call__(self):\n        here()\nsave = Saver()\nsave()\n",
]


@pytest.mark.parametrize(
    ("text", "expected"), [*((t, True) for t in GUARDED), *((t, False) for t in UNGUARDED)]
)
def test_a_guard_may_be_a_variable_an_object_or_an_early_end(text: str, expected: bool):
    whole = project(text)
    script = whole.scripts[0]
    call = next(c for c in script.calls if script.code(c) == "here()")
    assert guarded(whole, script, call) is expected


def test_the_block_under_name_of_an_imported_file_does_not_run(tmp_path: Path):
    (tmp_path / "tool.py").write_text(
        "def go():\n    here()\ndef other(): pass\nif __name__ == '__main__':\n    go()\n"
    )
    (tmp_path / "train.py").write_text("from tool import other\nother()\n")
    first = read_script(tmp_path / "train.py")
    whole = Project([first, read_script(tmp_path / "tool.py")], several_ranks=True)
    script = whole.scripts[1]
    call = next(n for n in script.order if isinstance(n, cst.Call) and script.code(n) == "here()")
    assert not whole.runs(script, call)
