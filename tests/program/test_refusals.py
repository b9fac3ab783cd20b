"""What a Loop refuses, and what it says: by name, before it does harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.errors import FolderError, LockstepError, ReplicaDied, RunError, Untrusted
from programs import HEAD, PLAIN, Heard, run, written


def changed(old: str, new: str, program: str = PLAIN) -> str:
    assert old in program
    return program.replace(old, new)


LOSS = 'return F.cross_entropy(model(x), y, reduction="sum"), len(y)'
STEP = "loop.step(batch, loss, optimizer)"
REFUSED = {
    "a mean": (changed(LOSS, "return F.cross_entropy(model(x), y)"), "one number without a count"),
    "a string": (changed(LOSS, "return 'loss', 1"), "returned a tuple of str, int"),
    "a negative count": (changed("len(y)", "-1"), "returned -1 as its count"),
    "a sum over nothing": (changed("len(y)", "(y * 0).sum()"), "its count is 0"),
    "a count below zero": (changed("len(y)", "-y.sum() - 1"), "its count is -"),
    "weights of another shape": (
        changed(LOSS, "return F.cross_entropy(model(x), y, reduction='none'), torch.ones(1)"),
        "Give each loss its weight",
    ),
    "a detached loss": (changed(LOSS, "return model(x).detach().sum(), 1"), "without gradients"),
    "a loss that raises": (
        changed(LOSS, "return model(x[:, :2]).sum(), 1"),
        "the loss loss raised",
    ),
    "backward in the loss": (
        changed(LOSS, "a = model(x).sum(); a.backward(); return model(x).sum(), 1"),
        "calls backward itself",
    ),
    "a step of its own": (changed(STEP, "optimizer.step()"), "called outside of loop.step"),
    "a tensor as batch": (changed(STEP, "loop.step(X, loss, optimizer)"), "was given a Tensor"),
    "a strange optimizer": (
        changed(STEP, "loop.step(batch, loss, torch.optim.SGD(model.parameters()))"),
        "does not know this SGD",
    ),
    "parameters of no model": (
        changed("model.parameters(), lr=1e-2", "nn.Linear(2, 2).parameters(), lr=1e-2"),
        "2 parameter(s) of no model",
    ),
    "batches without epochs": (
        changed("for epoch in loop.epochs(2):", "if True:"),
        "outside of loop.epochs",
    ),
    "no epochs": (changed("loop.epochs(2)", "loop.epochs(0)"), "give 1 or more"),
    "a model too late": (changed(STEP, "loop.model(Net())"), "called after training began"),
    "sparse gradients": (
        changed("Net()", "nn.Sequential(nn.Embedding(9, 6, sparse=True), nn.Linear(6, 3))"),
        "has sparse gradients",
    ),
    "data parallel": (changed("Net()", "nn.DataParallel(Net())"), "wrapped in DataParallel"),
    "synchronised batch norm": (
        changed("Net()", "nn.SyncBatchNorm.convert_sync_batchnorm(Net())"),
        "norm is a SyncBatchNorm",
    ),
    "a lone layer": (changed("Net()", "nn.BatchNorm1d(6)"), "a single BatchNorm1d"),
    "two models of one name": (
        changed("model = loop.model(Net())", "model = loop.model(Net()); loop.model(Net())"),
        "two models are called 'net'",
    ),
    "two loops": (
        changed("model = loop.model", "lockstep.Loop(global_batch=16); model = loop.model"),
        "still open",
    ),
    "ragged samples": (
        changed("loop.batches(DATA)", "loop.batches([X[0, : 1 + n % 5] for n in range(70)])"),
        "cannot be stacked",
    ),
    "a collate that drops": (
        changed("(DATA)", "(DATA, collate=lambda s: torch.utils.data.default_collate(s[1:]))"),
        "it drops samples",
    ),
    "a collate that raises": (
        changed("(DATA)", "(DATA, collate=lambda s: s[99])"),
        "the collate function <lambda> raised IndexError",
    ),
    "a generator": (changed("(DATA)", "(x for x in DATA)"), "can be read only once"),
    "no data": (changed("(DATA)", "([])"), "list has no samples"),
    "a number as data": (changed("(DATA)", "(3)"), "int is no data set"),
    "a sampler for streams": (
        changed("(DATA)", "({1, 2}, sampler=[1])"),
        "is a stream, which has no index",
    ),
    "single samples as batches": (
        changed("(DATA)", "(DATA, batch_sampler=range(70))"),
        "yields single samples",
    ),
    "something without a state": (
        changed("batches =", "loop.keep(names=['a']); batches ="),
        "names (list) cannot be kept",
    ),
    "a buffer that changes": (
        changed(
            "model = loop.model(Net())",
            "net = Net(); net.register_buffer('n', torch.zeros(1)); net.forward_ = net.forward; "
            "net.forward = lambda x: (net.n.add_(1), net.forward_(x))[1]; model = loop.model(net)",
        ),
        "changes the buffer n",
    ),
    "a counter": (
        changed(
            LOSS,
            "model.calls = getattr(model, 'calls', 0) + 1; t, n = F.cross_entropy("
            "model(x) * model.calls, y, reduction='sum'), len(y); return t, n",
        ),
        "this changed: Net.calls",
    ),
    "a generator of its own": (
        changed(
            LOSS,
            "t = F.cross_entropy(model(x) * RNG.random(), y, reduction='sum'); return t, len(y)",
        ),
        "this changed: RNG",
    ),
    "a counter that does not matter yet": (
        changed(LOSS, f"model.seen = getattr(model, 'seen', 0) + 1; {LOSS}"),
        "computing a shard changes Net.seen",
    ),
    "a private counter": (
        changed(LOSS, f"model._seen = getattr(model, '_seen', 0) + 1; {LOSS}"),
        "computing a shard changes Net._seen",
    ),
    "a hook that counts": (
        changed("batches =", "model.b.weight.register_hook(lambda g: BANK.append(0)); batches ="),
        "a shard changes BANK",
    ),
    "a list that grows": (changed(LOSS, f"BANK.append(0); {LOSS}"), "a shard changes BANK"),
    "a collate that counts": (
        changed("(DATA)", "(DATA, collate=COUNTING)"),
        "reading samples of list changes BANK",
    ),
    "an optimizer with a generator": (
        changed("torch.optim.AdamW(", "NOISY(").replace(", lr=1e-2", ", lr=1e-2"),
        "NOISY draws from a generator of its own (NOISY.generator)",
    ),
    "parameters that appear": (
        changed(STEP, f"{STEP}; model.late = nn.Linear(2, 2)"),
        "late.weight, late.bias appeared while the program trained",
    ),
    "a data loader": (
        changed("(DATA)", "(torch.utils.data.DataLoader(DATA, 4))"),
        "was given a DataLoader, whose samples are batches already",
    ),
    "a batch of before": (
        changed(STEP, "BANK.append(batch); loop.step(BANK[0], loss, optimizer)"),
        "a batch of an earlier iteration",
    ),
    "a batch with an index": (changed(STEP, "batch[0]"), "only the loss sees their content"),
    "an optimizer with a closure": (
        changed("AdamW(model.parameters(), lr=1e-2)", "LBFGS(model.parameters())"),
        "LBFGS needs a closure",
    ),
    "a lazy layer": (changed("Net()", "nn.Sequential(nn.LazyLinear(3))"), "has no shape yet"),
    "a batch that four shards do not divide": (
        changed("global_batch=16", "global_batch=10"),
        "Or keep the batch and use --shards 2",
    ),
    "odd shards": (changed("global_batch=16", "global_batch=16, shards=3"), "not a power of two"),
    "an unknown precision": (
        changed("global_batch=16", "global_batch=16, precision='fp8'"),
        "precision is 'fp8'",
    ),
    "no optimizer named": (
        changed(STEP, "loop.step(batch, loss)").replace(
            "batches =", "loop.optimizer(torch.optim.SGD(model.parameters(), lr=1)); batches ="
        ),
        "the loop has 2",
    ),
    "a batch norm without momentum": (
        changed("Net()", "nn.Sequential(nn.BatchNorm1d(6, momentum=None), nn.Linear(6, 3))"),
        "momentum=None",
    ),
}


MORE = """
RNG = numpy.random.default_rng(0)
BANK = []

def COUNTING(samples):
    BANK.append(0)
    return torch.utils.data.default_collate(samples)

class NOISY(torch.optim.AdamW):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.generator = numpy.random.default_rng()
"""


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_by_name(case: str, tmp_path: Path):
    body, message = REFUSED[case]
    path = written(tmp_path, body, HEAD + MORE)
    with pytest.raises(LockstepError) as caught:
        run(path, tmp_path / "out")
    assert message in str(caught.value)
    assert not isinstance(caught.value, ReplicaDied)


@pytest.mark.parametrize("exact", [True, False])
def test_data_that_depend_on_the_rank_are_refused(exact: bool, tmp_path: Path):
    body = changed("(DATA)", "([(x + loop.rank, y) for x, y in DATA])")
    path = written(tmp_path, body)
    with pytest.raises(LockstepError, match="the replicas read different samples from list"):
        run(path, tmp_path / "out", 2, exact=exact)


def test_weights_that_depend_on_the_rank_are_refused(tmp_path: Path):
    path = written(tmp_path, changed("Net())", "torch.manual_seed(loop.rank) and Net())"))
    with pytest.raises(LockstepError, match="built net with different weights"):
        run(path, tmp_path / "out", 2)


def test_weights_that_one_replica_changes_are_not_saved(tmp_path: Path):
    body = changed(STEP, STEP + "\n            if loop.is_first: model.b.bias.data.add_(1)")
    path = written(tmp_path, body)
    with pytest.raises(RunError, match=r"different weights after step 5: net\.b\.bias"):
        run(path, tmp_path / "out", 2)
    assert not list((tmp_path / "out" / "checkpoints").glob("*.safetensors"))


COUNTS = """
        calls.append(0)
        {loss} if len(calls) > 30 else (F.cross_entropy(model(x), y, reduction="sum"), len(y))
"""


def test_a_counter_may_be_allowed_and_is_still_watched(tmp_path: Path):
    later = LOSS.replace("model(x)", "model(x) * len(calls)")
    counting = COUNTS.format(loss=later.replace("return ", "return (").replace("len(y)", "len(y))"))
    body = "calls = []\n" + changed(f"        {LOSS}\n", counting)
    path, out = written(tmp_path, body), tmp_path / "out"
    with pytest.raises(LockstepError, match="computing a shard changes calls"):
        run(path, tmp_path / "refused")
    allowed = {"may_change": "calls", "check_every": 1, "checkpoint_every": 1}
    with pytest.raises(Untrusted, match=r"step \d+, shard .* this changed: calls"):
        run(path, out, **allowed)
    with pytest.raises(FolderError, match="a run that a check has ended"):
        run(path, out, resume=True, **allowed)


def test_fast_mode_warns_of_a_counter(tmp_path: Path):
    body = "calls = []\n" + changed(LOSS, f"calls.append(0); {LOSS}")
    path = written(tmp_path, body.replace("DATA", "DATA[:64]"))
    run(path, tmp_path / "a", exact=False, console=Heard(tmp_path / "heard"))
    assert "computing a part of the batch changes calls" in (tmp_path / "heard").read_text()
    allowed = Heard(tmp_path / "quiet")
    run(path, tmp_path / "b", exact=False, console=allowed, may_change="calls")
    assert not (tmp_path / "quiet").exists()


def test_a_data_set_that_asks_for_its_worker_is_pointed_out(tmp_path: Path):
    head = (
        HEAD
        + """
class Rows(torch.utils.data.Dataset):
    def __len__(self): return len(X)
    def __getitem__(self, index):
        torch.utils.data.get_worker_info()
        return X[index], Y[index]
"""
    )
    path = written(tmp_path, changed("(DATA)", "(Rows())"), head)
    run(path, tmp_path / "out", console=Heard(tmp_path / "heard"))
    assert "Rows asks which worker reads a sample" in (tmp_path / "heard").read_text()


def test_a_thread_of_the_program_is_pointed_out(tmp_path: Path):
    head = HEAD + "import threading\nDONE = threading.Event()\ndef mine(): DONE.wait()\n"
    start = "threading.Thread(target=mine, daemon=True).start()"
    path = written(tmp_path, changed("batches =", f"{start}; batches ="), head)
    run(path, tmp_path / "out", console=Heard(tmp_path / "heard"))
    assert "runs a thread of its own (mine)" in (tmp_path / "heard").read_text()


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path: Path):
    path = written(tmp_path, changed("lr=1e-2", "lr=1e30"))
    with pytest.raises(RunError, match="NaN or infinite"):
        run(path, tmp_path / "out", 2)


@pytest.mark.parametrize("exact", [True, False])
def test_a_batch_without_items_trains_with_a_warning(exact: bool, tmp_path: Path):
    masked = (
        'return F.cross_entropy(model(x), y * 0, reduction="sum", ignore_index=0), (y * 0).sum()'
    )
    path = written(tmp_path, changed(LOSS, masked))
    run(path, tmp_path / "out", 2, exact=exact, console=Heard(tmp_path / "heard"))
    assert "has no items" in (tmp_path / "heard").read_text()


PAIRS = """
        rows = model(x)
        return F.cross_entropy(rows @ rows.T, torch.arange(len(y)), reduction="sum"), len(y)
"""
DIVIDED = {
    "in-batch pairs": changed(f"        {LOSS}\n", PAIRS),
    "a mean over the batch": changed("model(x),", "model(x) - model(x).mean(0),"),
    "a mean with a count": changed('reduction="sum"', 'reduction="mean"'),
    "functional dropout": changed("model(x)", "F.dropout(model(x), 0.5)"),
}


@pytest.mark.parametrize("replicas", [1, 4])
@pytest.mark.parametrize("case", DIVIDED)
def test_fast_mode_warns_of_what_depends_on_the_division(case: str, replicas: int, tmp_path: Path):
    path = written(tmp_path, DIVIDED[case])
    run(path, tmp_path / "out", replicas, exact=False, console=Heard(tmp_path / "heard"))
    assert "depends on how the batch is divided" in (tmp_path / "heard").read_text()


def test_fast_mode_warns_of_a_variable_that_matters_late(tmp_path: Path):
    late = changed("model(x),", "model(x) - (loop.epoch > 0) * model(x).mean(0),")
    path = written(tmp_path, late.replace("DATA", "DATA[:64]"))
    run(path, tmp_path / "out", exact=False, console=Heard(tmp_path / "heard"))
    said = (tmp_path / "heard").read_text()
    # The first batch of the second epoch.
    assert said.count("depends on how the batch is divided") == said.count("step 5:") == 1


SEEN = """
COUNTS = torch.ones(3)
def measure(batch):
    COUNTS.index_add_(0, model(batch[0]).argmax(1), torch.ones(len(batch[0])))
    return {"n": torch.ones(len(batch[0]))}
"""


def test_fast_mode_warns_of_what_each_replica_has_evaluated(tmp_path: Path):
    body = changed(LOSS, LOSS.replace("model(x), y", "model(x), y, weight=COUNTS / COUNTS.sum()"))
    body = body.replace("epochs(2):\n", "epochs(2):\n        loop.evaluate(DATA[:30], measure)\n")
    path = written(tmp_path, SEEN + body.replace("DATA)", "DATA[:64])"))
    run(path, tmp_path / "out", 2, exact=False, console=Heard(tmp_path / "heard"))
    assert (
        "computed by replicas 1 and 0, the gradients of a shard" in (tmp_path / "heard").read_text()
    )


PAGE = """
class Page:
    def __init__(self):
        self.x = torch.zeros(16, 6)
        self.constant = torch.ones(3)
    def __call__(self, samples):
        x = self.x[: len(samples)]
        for row, (values, _) in zip(x, samples):
            row.copy_(values)
        return {returned}, torch.stack([y for _, y in samples]), self.constant
"""


@pytest.mark.parametrize("exact", [True, False])
def test_a_collate_function_that_overwrites_its_batches_is_refused(exact: bool, tmp_path: Path):
    body = changed("x, y = batch", "x, y, _ = batch").replace("(DATA)", "(DATA, collate=Page())")
    path = written(tmp_path, PAGE.replace("{returned}", "x") + body)
    for shards in (2, 8):
        with pytest.raises(LockstepError, match="writes into memory that it returned before"):
            run(path, tmp_path / f"out{shards}", exact=exact, shards=shards)
    body = body.replace("    x, y, _ = batch", "    x, y, _ = batch\n        x.mul_(0.5)")
    path = written(tmp_path, PAGE.replace("{returned}", "x.clone()") + body)
    run(path, tmp_path / "copied", exact=exact)


def test_fast_mode_is_quiet_about_two_sets_of_data(tmp_path: Path):
    pairs = changed("for batch in batches:", "for batch in zip(batches, others):")
    pairs = pairs.replace("x, y = batch", "(x, y), _ = batch").replace(
        "    def loss", "    others = loop.batches(DATA[:64])\n    def loss"
    )
    path = written(tmp_path, pairs.replace("(DATA)", "(DATA[:64])"))
    for replicas in (1, 2, 4):
        heard = Heard(tmp_path / f"heard{replicas}")
        run(path, tmp_path / f"out{replicas}", replicas, exact=False, console=heard)
        assert not heard.text


SYSTEM = """
class Drawn(torch.utils.data.Dataset):
    chance = random.SystemRandom()
    def __len__(self):
        return 64
    def __getitem__(self, number):
        return X[number] + (number > 60) * CHANCE.random(), Y[number]
CHANCE = random.SystemRandom()
"""


@pytest.mark.parametrize("where", ["data", "loss"])
def test_a_generator_without_a_seed_is_refused(where: str, tmp_path: Path):
    body = (
        changed("DATA", "Drawn()")
        if where == "data"
        else changed("x, y = batch", "x, y = batch; x = x + 0 * CHANCE.random()")
    )
    path = written(tmp_path, SYSTEM + body)
    with pytest.raises(LockstepError, match="CHANCE draws from the operating system"):
        run(path, tmp_path / "out")


def test_fast_mode_is_quiet_about_a_plain_loss(tmp_path: Path):
    path = written(tmp_path, PLAIN.replace("DATA", "DATA[:64]"))
    run(path, tmp_path / "out", 2, exact=False, console=Heard(tmp_path / "h"))
    assert not (tmp_path / "h").exists()


def test_asking_for_the_number_of_replicas_is_pointed_out(tmp_path: Path):
    path = written(tmp_path, changed("lr=1e-2", "lr=1e-2 * loop.replicas"))
    run(path, tmp_path / "out", console=Heard(tmp_path / "heard"))
    assert "lr=1e-2 * loop.replicas" in (tmp_path / "heard").read_text()


def test_a_batch_that_is_unpacked_is_refused(tmp_path: Path):
    path = written(tmp_path, changed("for batch in batches:", "for x, batch in batches:"))
    with pytest.raises(LockstepError, match="cannot be unpacked"):
        run(path, tmp_path / "out")


def test_an_evaluation_on_one_replica_only_is_refused(tmp_path: Path):
    measure = "lambda b: {'n': b[1].float()}"
    body = f"{PLAIN}        if loop.is_first: loop.evaluate(DATA, {measure})\n"
    with pytest.raises(LockstepError, match="do different things at the same time"):
        run(written(tmp_path, body), tmp_path / "out", 2)


def test_models_built_before_the_loop_are_the_same_in_every_run(tmp_path: Path):
    body = "NET, NOISE = Net(), torch.randn(6) + random.random()\n"
    body += changed("Net()", "NET").replace("model(x)", "model(x + NOISE)")
    path = written(tmp_path, body)
    hashes = {run(path, tmp_path / str(n), max(n, 1))["weights_sha256"] for n in (0, 1, 2)}
    assert len(hashes) == 1
