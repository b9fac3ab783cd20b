"""One process writes shared files and lines, the others wait, and all leave together."""

from __future__ import annotations

from pathlib import Path

from lockstep.convert import Conversion, convert
from lockstep.source.reading import parse
from ranks import run_ranks

BEGIN = """\
import os
import random
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

"""
MADE = """\
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=16, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
TRAIN = """\
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
BARRIER = "if WORLD_SIZE > 1:\n    dist.barrier()\n"
LEAVE = "    dist.barrier()\n    dist.destroy_process_group()\n"


def converted(text: str) -> Conversion:
    """What becomes of a script."""
    return convert(parse(Path("train.py"), text))


def of(*parts: str) -> str:
    """A script from its parts, converted."""
    return converted("".join((BEGIN, *parts))).text


def right(text: str) -> str:
    """Lines one level to the right."""
    return "".join(f"    {line}" if line.strip() else line for line in text.splitlines(True))


# -- seeds


def test_a_generator_of_its_own_needs_no_common_seed():
    text = of("noise = np.random.default_rng(1).normal(size=4)\n", MADE, TRAIN)
    assert "np.random.seed" not in text


def test_a_draw_of_all_gets_a_common_seed():
    text = of("noise = np.random.normal(size=4)\nr = np.random.default_rng(1)\n", MADE, TRAIN)
    assert "    np.random.seed(0)\n" in text


# -- the end


def test_a_program_with_one_end_parts_there():
    text = of("def main():\n", right(MADE + TRAIN), "\n\nmain()\n")
    assert text.endswith(right("if WORLD_SIZE > 1:\n" + LEAVE) + "\n\nmain()\n")


def test_a_program_with_several_ends_parts_behind_all_of_them():
    early = "    if os.environ.get('DRY'):\n        return\n"
    text = of("def main():\n", right(MADE), early, right(TRAIN), "\n\nmain()\n")
    assert text.endswith(
        "        optimizer.step()\n\n\nmain()\nif dist.is_initialized():\n" + LEAVE
    )


def test_results_at_the_end_are_computed_before_the_processes_leave():
    looked = "def look(model):\n    return len(list(model.parameters()))\n\n\n"
    end = "    return look(model)\n\n\nfound = main()\n"
    text = of(looked, "def main():\n", right(MADE + TRAIN), end)
    assert text.endswith("found = main()\nif dist.is_initialized():\n" + LEAVE)


def test_every_return_leaves_the_group_if_the_program_does_not_come_back():
    early = "    if os.environ.get('DRY'):\n        return 1\n"
    end = "    return 0\n\n\nraise SystemExit(main())\n"
    text = of("def main():\n", right(MADE), early, right(TRAIN), end)
    leave = right("if WORLD_SIZE > 1:\n" + LEAVE)
    assert right(leave) + "        return 1\n" in text
    assert leave + "    return 0\n" in text


# -- checkpoints

SAVED = 'torch.save(model.state_dict(), "model.pt")\n'
LOADED = 'model.load_state_dict(torch.load("model.pt"))\n'


def test_nobody_waits_for_a_checkpoint_of_another_run():
    text = of(
        "def fit(model, optimizer, loader):\n",
        right(TRAIN + SAVED),
        "\n\n",
        MADE,
        f'if os.path.exists("model.pt"):\n    {LOADED}',
        "fit(model, optimizer, loader)\n",
    )
    assert "dist.barrier()\nif os.path" not in text.replace("    ", "")


def test_all_wait_for_a_checkpoint_of_this_run():
    assert BARRIER + "bare(model).load" in of(MADE, TRAIN, SAVED, LOADED)
    fit = "def fit(model, optimizer, loader):\n" + right(TRAIN + SAVED) + "\n\n"
    text = of(fit, MADE, "fit(model, optimizer, loader)\n", LOADED)
    assert BARRIER + "bare(model).load" in text


def test_all_wait_for_a_checkpoint_of_the_round_before():
    rounds = f"for part in range(2):\n    if part:\n        {LOADED}{right(TRAIN + SAVED)}"
    assert right(BARRIER) + "    if part:\n" in of(MADE, rounds)


# -- lines

LOOK = "def look(model):\n    for x, y in loader:\n        model(x)\n    return 1\n\n\n"


def test_a_variable_that_stands_for_print_prints_once():
    meter = "class Meter:\n    def __init__(self, say=print):\n        self.say = say\n\n"
    meter += "    def tell(self, n):\n        self.say(n)\n\n\n"
    text = of(meter, MADE, TRAIN, "Meter().tell(1)\n")
    assert "        if RANK == 0:\n            self.say(n)\n" in text


def test_a_variable_that_may_stand_for_another_function_is_left_alone():
    meter = "class Meter:\n    def __init__(self, say=print):\n        self.say = say\n\n"
    meter += "    def tell(self, n):\n        self.say(n)\n\n\nkept = []\n"
    text = of(meter, MADE, TRAIN, "Meter().tell(1)\nMeter(kept.append).tell(2)\n")
    assert "    def tell(self, n):\n        self.say(n)\n" in text


def test_a_line_that_all_compute_is_printed_before_the_processes_leave():
    text = of(LOOK, MADE, TRAIN, "print(look(model))  # the end\n")
    end = "shown = (look(model))\nif RANK == 0:\n    print(shown)  # the end\n"
    assert text.endswith(end + "if WORLD_SIZE > 1:\n" + LEAVE)


def test_lines_that_follow_each_other_are_under_one_condition():
    text = of(LOOK, MADE, TRAIN, "print(look(model))\n" + SAVED)
    assert "if RANK == 0:\n    print(shown)\n    torch.save(bare(model)" in text


COUNTED = TRAIN.replace("for x, y in loader", "for i, (x, y) in enumerate(loader)")


def test_the_samples_that_are_shown_are_those_of_all_processes():
    assert "print(i * len(x) * WORLD_SIZE, i / 4)" in of(
        MADE, COUNTED, "        print(i * len(x), i / 4)\n"
    )
    named = "        now, seen = 1, (i + 1) * len(x)\n        print(f'{seen} of 64')\n"
    assert "now, seen = 1, (i + 1) * len(x) * WORLD_SIZE\n" in of(MADE, COUNTED, named)


def test_samples_that_are_counted_with_are_left_alone():
    assert "seen = i * len(x)\n" in of(
        MADE, COUNTED, "        seen = i * len(x)\n        seen + 1\n"
    )
    assert "print(data[i * len(x)])" in of(MADE, COUNTED, "        print(data[i * len(x)])\n")


# -- files that are written

ROWS = '    for i in range(3):\n        row = [i, 2 * i]\n        f.write(f"{row}\\n")\n'


def test_one_process_opens_the_file_that_it_writes():
    for mode in ("w", "a", "wb"):
        head = f'with open("rows.txt", "{mode}") as f:\n'
        assert "if RANK == 0:\n" + right(head + ROWS) in of(MADE, TRAIN, head, ROWS)
    head = 'with Path("rows.txt").open("w") as f:\n'
    assert "if RANK == 0:\n" + right(head + ROWS) in of(MADE, TRAIN, head, ROWS)


def test_a_writer_inside_is_not_guarded_twice():
    text = of(
        "import csv\n",
        MADE,
        TRAIN,
        'with open("rows.csv", "w") as f:\n    w = csv.writer(f)\n    w.writerow([1])\n',
        'with open("rows.csv") as f:\n    w = f.read()\n',
    )
    assert "        w = csv.writer(f)\n        w.writerow([1])\n" in text
    assert 'with open("rows.csv") as f:\n    w = f.read()\n' in text


def test_all_processes_take_part_in_what_is_done_while_a_file_is_open():
    head = 'with open("log.txt", "w") as f:\n'
    once = 'with open("log.txt" if RANK == 0 else os.devnull, "w") as f:\n'
    assert once in of(MADE, head, right(TRAIN), '    f.write("done")\n')
    assert once in of(MADE, TRAIN, head, '    best = 3\n    f.write("3")\n', "best + 1\n")
    assert once in of(MADE, TRAIN, head, '    f.write(f"{model(torch.ones(1, 4))}")\n')
    assert once in of(MADE, TRAIN, head, '    f.write(f"{random.random()}")\n')
    changed = "    for row in rows:\n        row[0] = 1\n        f.write(row)\n"
    assert once in of(MADE, TRAIN, "rows = [[0]]\n", head, changed)


def test_a_generator_that_is_drawn_from_later_is_drawn_from_by_all():
    draws = "r = np.random.default_rng(1)\n"
    head = 'with open("log.txt", "w") as f:\n    f.write(f"{r.normal()}")\n'
    assert "os.devnull" not in of(draws, MADE, TRAIN, head)
    assert "os.devnull" in of(draws, MADE, TRAIN, head, "noise = r.normal()\n")


def test_one_process_keeps_a_log_around_the_training():
    log = "from torch.utils.tensorboard import SummaryWriter\n"
    text = of(log, MADE, "with SummaryWriter() as w:\n", right(TRAIN), "    w.add_text('a', 'b')\n")
    assert "with SummaryWriter() if RANK == 0 else nullcontext() as w:\n" in text
    assert "    if RANK == 0:\n        w.add_text('a', 'b')\n" in text


def test_one_process_removes_a_file():
    text = of(MADE, TRAIN, 'if os.path.exists("a.log"):\n    os.remove("a.log")\n')
    assert 'if os.path.exists("a.log") and RANK == 0:\n' in text


# -- files that are made, and then read

MAKE = """\
def make(path):
    rows = np.random.default_rng(1).normal(size=(64, 5))
    with open(path, "w") as f:
        for row in rows:
            f.write(" ".join(map(str, row)) + "\\n")


"""
READ = 'rows = np.loadtxt("rows.txt", dtype="float32")\n'
MISSING = 'if not os.path.exists("rows.txt"):\n    print("making")\n    make("rows.txt")\n'
FIRST = "if LOCAL_RANK > 0:\n    dist.barrier()\n"
THEN = "if WORLD_SIZE > 1 and LOCAL_RANK == 0:\n    dist.barrier()\n"


def test_one_process_makes_what_is_missing_and_the_others_look_then():
    text = of(MAKE, MISSING, READ, MADE, TRAIN)
    said = MISSING.replace('    print("', '    if RANK == 0:\n        print("')
    assert FIRST + said + THEN + READ in text
    assert MAKE in text


def test_a_function_that_reads_or_makes_is_called_by_one_process_first():
    get = "def get(path):\n    if os.path.exists(path):\n        return np.load(path)\n"
    get += "    rows = np.ones(3)\n    np.save(path, rows)\n    return rows\n\n\n"
    text = of(get, 'rows = get("rows.npy")\n', MADE, TRAIN)
    assert get in text
    assert FIRST + 'rows = get("rows.npy")\n' + THEN in text


def test_a_file_that_is_always_written_is_waited_for():
    text = of(MAKE, 'make("rows.txt")\n', READ, MADE, TRAIN)
    assert 'make("rows.txt")\n' + BARRIER + READ in text
    assert '    if RANK == 0:\n        with open(path, "w") as f:\n' in text


def test_a_function_that_writes_and_reads_waits_in_between():
    both = 'def get():\n    np.save("rows.npy", np.ones(3))\n    return np.load("rows.npy")\n\n\n'
    text = of(both, "rows = get()\n", MADE, TRAIN)
    saved = 'if RANK == 0:\n    np.save("rows.npy", np.ones(3))\n'
    assert right(saved + BARRIER) + '    return np.load("rows.npy")\n' in text


def test_nobody_waits_for_a_file_that_is_not_read():
    folder = 'if not os.path.exists("out"):\n    os.makedirs("out")\n'
    text = of(folder, 'with open("out/note.txt", "w") as f:\n    f.write("a")\n', MADE, TRAIN)
    assert text.count("dist.barrier()") == 1
    assert 'if not os.path.exists("out"):\n' in text


def test_files_of_samples_and_of_training_are_not_waited_for():
    cached = "class Rows(torch.utils.data.Dataset):\n    def __len__(self):\n        return 64\n\n"
    cached += "    def __getitem__(self, i):\n        path = f'{i}.npy'\n"
    cached += "        if not os.path.exists(path):\n            np.save(path, np.ones(3))\n"
    cached += "        return np.load(path)\n\n\n"
    late = 'if not os.path.exists("end.txt"):\n    make("end.txt")\n'
    text = of(MAKE, cached, MADE, "rows = Rows()\n", TRAIN, late)
    assert text.count("dist.barrier()") == 1


def test_files_whose_making_would_divide_the_draws_get_a_note():
    draws = MAKE.replace("np.random.default_rng(1)", "np.random")
    split = "order = np.random.permutation(64)\n"
    script = "".join((BEGIN, "np.random.seed(1)\n", draws, MISSING, READ, split, MADE, TRAIN))
    found = converted(script)
    assert FIRST not in found.text
    assert any("Set the seed below it" in note.text for note in found.notes)
    seeded = converted(script.replace(split, "np.random.seed(2)\n" + split))
    assert FIRST in seeded.text


def test_two_processes_make_the_file_that_one_makes(tmp_path: Path):
    train = TRAIN.replace("range(2)", "range(1)")
    log = 'with open("log.txt", "a") as f:\n    for i in range(3):\n        f.write(f"{i}\\n")\n'
    script = "".join((BEGIN, MAKE, MISSING, READ, MADE, train, log))
    texts = {"one": script, "two": converted(script).text}
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(text)
    run_ranks(tmp_path / "one" / "train.py", 1)
    run_ranks(tmp_path / "two" / "train.py", 2)
    for file in ("rows.txt", "log.txt"):
        assert (tmp_path / "two" / file).read_text() == (tmp_path / "one" / file).read_text()
