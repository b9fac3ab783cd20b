"""Run scripts that ask for GPUs in their own processes, because fake_cuda changes torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lockstep.processes.ports import free_port

PRELUDE = """
import contextlib, copy, faulthandler, io, os, pickle, sys, time, warnings
faulthandler.dump_traceback_later(60, exit=True)
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from lockstep.probes import fake_cuda

fake_cuda.install(2)
fake_cuda.install(2)
CPU = torch.device("cpu")

@contextlib.contextmanager
def refuses(kind, words):
    try:
        yield
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"nothing refused: {words}")
"""


def run(folder: Path, body: str, replicas: int = 1) -> None:
    """The script, once for each rank; it fails if it fails on any, or warns."""
    script = folder / "train.py"
    script.write_text(PRELUDE + body)
    port = str(free_port())
    ranks = []
    for rank in range(replicas):
        world = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(replicas)}
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
        ranks.append(
            subprocess.Popen(
                [sys.executable, "-W", "error", str(script)],
                env={**os.environ, **world, **place},
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        said = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0] * replicas, "\n".join(said)


PLACES = """
assert fake_cuda.answered() == []
device = torch.device("cuda:1")
assert (device.type, device.index) == ("cuda", 1)
names = ["cuda", "cuda:1", 1, device, torch.device("cuda")]
one = torch.ones(2)
for name in names:
    made = [
        torch.zeros(2, device=name), torch.tensor([1.0], device=name), torch.arange(3, device=name),
        torch.as_tensor([1], device=name), torch.asarray([1], device=name),
        torch.randn_like(one, device=name), torch.full((2,), 1.0, device=name),
        torch.normal(0.0, 1.0, (2,), device=name), torch.fft.fftfreq(4, device=name),
        torch.eye(2, dtype=torch.float64, device=name, requires_grad=True),
        one.to(name), one.to(name, torch.float64), one.to(name, non_blocking=True),
        one.to(device=name, dtype=torch.float16), one.cuda(), one.new_zeros(2, device=name),
        one.new_tensor([1], device=name), torch.empty(2, device=name, pin_memory=True),
    ]
    assert {tensor.device for tensor in made} == {CPU}
    model = nn.Linear(2, 2, device=name).to(name).cuda().cuda(1).to(device=name)
    assert model.to(name, torch.float64).weight.dtype == torch.float64
    nn.Linear(2, 2, device="meta").to_empty(device=name)
    assert torch.Generator(name).device == torch.Generator(device=name).device == CPU
    with torch.device(name) if not isinstance(name, int) else contextlib.nullcontext():
        assert torch.zeros(2).device == CPU
    torch.set_default_device(name)
    assert torch.zeros(2).device == CPU
    torch.set_default_device(None)
assert fake_cuda.answered() == ["cuda"]
with torch.device("meta"):
    assert nn.Linear(2, 2).weight.is_meta
assert one.to(torch.float64).dtype == torch.float64 and one.to(made[1]).device == CPU
for call in (lambda: one.to("cuda:2"), lambda: one.cuda(2), lambda: torch.zeros(1, device=2)):
    with refuses(RuntimeError, "cuda:2"):
        call()

# Memory: a copy where a GPU makes one, and none where it does not.
array = np.zeros(2, dtype=np.float32)
there = [torch.from_numpy(array).to("cuda"), torch.as_tensor(array, device=device)]
here = torch.from_numpy(array)
array[:] = 7
assert [float(tensor.sum()) for tensor in there] == [0.0, 0.0] and float(here.sum()) == 14.0
weight = torch.ones(2, device="cuda")
best, again = weight.cpu(), weight.to("cuda")
weight.mul_(3)
assert float(best.sum()) == 2.0 and float(again.sum()) == 6.0
leaf = torch.ones(2, device=device, requires_grad=True).to(device)
assert leaf.is_leaf

# Old names of types.
assert one.type("torch.cuda.DoubleTensor").dtype == torch.float64
assert one.type(torch.cuda.HalfTensor).dtype == torch.float16
assert torch.cuda.FloatTensor([1.0]).device == CPU and isinstance(one, torch.cuda.FloatTensor)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.set_default_tensor_type("torch.cuda.DoubleTensor")
    assert torch.zeros(1).dtype == torch.float64
    torch.set_default_tensor_type(torch.cuda.FloatTensor)
one.record_stream(torch.cuda.current_stream())
assert one.pin_memory() is one

# Files, with tags of a GPU in them.
def save(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()

plain = save({"weight": one, "where": device})
tagged = io.BytesIO()
original = torch.serialization.location_tag
torch.serialization.location_tag = lambda storage: "cuda:0"
torch.save({"weight": one, "where": device}, tagged)
torch.serialization.location_tag = original
assert tagged.getvalue() != plain
for data in (plain, tagged.getvalue()):
    for where in (None, "cpu", "cuda", "cuda:1", device, {"cuda:0": "cuda:1"}, {"cuda:0": "cpu"},
                  lambda storage, tag: storage, lambda storage, tag: storage.cuda(1),
                  lambda storage, tag: None):
        for only in (True, False):
            back = torch.load(io.BytesIO(data), map_location=where, weights_only=only)
            assert back["weight"].equal(one) and back["where"] == device
with refuses(RuntimeError, "cuda:5"):
    torch.load(io.BytesIO(plain), map_location="cuda:5")

# What must stay as it was.
for function in (torch.zeros, torch.as_tensor, torch.fft.fftfreq, torch.Tensor.to, torch.Generator):
    assert pickle.loads(pickle.dumps(function)) is function
assert isinstance(torch.default_generator, torch.Generator) and not isinstance(1, torch.Generator)
seeded = pickle.loads(pickle.dumps(torch.Generator("cuda").manual_seed(3)))
plain = torch.Generator().manual_seed(3)
assert torch.rand(1, generator=seeded).equal(torch.rand(1, generator=plain))
assert torch.zeros.__name__ == "zeros" and "device" in torch.zeros.__doc__

# Data.
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, i):
        return torch.zeros(1, device="cuda") + i

for workers in (0, 1):
    loader = torch.utils.data.DataLoader(
        Numbers(), 2, num_workers=workers, pin_memory=True, pin_memory_device="cuda:1"
    )
    batches = [batch.cuda(non_blocking=True) for batch in loader]
    assert torch.cat(batches).flatten().tolist() == [0, 1, 2, 3, 4, 5]

# Less precision: asked for, noted, and not had.
model = nn.Linear(2, 2).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
scaler = torch.amp.GradScaler("cuda")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    assert torch.cuda.amp.GradScaler().is_enabled()
    with torch.cuda.amp.autocast():
        assert model(one).dtype == torch.float32
with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
    assert torch.is_autocast_enabled()
    loss = model(one).sum()
before = model.weight.detach().clone()
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
assert float(nn.utils.clip_grad_norm_(model.parameters(), 1.0)) > 0.0
scaler.step(optimizer)
scaler.update()
assert not model.weight.equal(before) and scaler.get_scale() == 65536.0
with torch.autocast("cuda", enabled=False):
    pass
assert fake_cuda.answered()[1:] == [
    "autocast float16 ran in float32", "autocast bfloat16 ran in float32"
]
with refuses(ValueError, "Give 1 or more"):
    fake_cuda.install(0)
"""


def test_a_device_is_translated_wherever_a_script_gives_one(tmp_path: Path):
    run(tmp_path, PLACES)


CARDS = """
cuda = torch.cuda
assert cuda.is_available() and cuda.device_count() == 2 and cuda.current_device() == 0
cuda.set_device("cuda:1")
assert cuda.current_device() == torch.accelerator.current_device_index() == 1
with cuda.device(0):
    assert cuda.current_device() == 0
with cuda.device(torch.device("cuda", 0)), cuda.device_of(torch.zeros(1)):
    assert cuda.current_device() == 0
with refuses(RuntimeError, "cuda:7"):
    cuda.set_device(7)
assert cuda.current_device() == 1
cuda.synchronize(); cuda.synchronize(0); cuda.empty_cache(); cuda.ipc_collect(); cuda.init()
cuda.reset_peak_memory_stats(); cuda.memory.reset_peak_memory_stats(1)
assert cuda.max_memory_allocated() == cuda.memory.memory_allocated(0) == cuda.memory_reserved() == 0
assert cuda.memory_stats()["allocated_bytes.all.peak"] == 0 and cuda.memory_summary()
free, total = cuda.mem_get_info()
assert 0 < free <= total == cuda.get_device_properties(0).total_memory
assert cuda.get_device_name() and cuda.get_device_capability(1) == (8, 0)
assert cuda.is_bf16_supported() and dist.is_nccl_available() and cuda.nccl.version() > (2, 10)
assert torch.accelerator.is_available() and torch.accelerator.device_count() == 2
assert torch.accelerator.current_accelerator().type == "cuda"
torch.accelerator.synchronize()
torch.accelerator.set_device_index(0)

# The CPU's numbers come as they would without any of this.
torch.manual_seed(5)
first = torch.rand(3)
torch.manual_seed(5)
cuda.manual_seed(1); cuda.manual_seed_all(2); cuda.seed_all()
states = cuda.get_rng_state_all()
cuda.set_rng_state_all(states); cuda.set_rng_state(cuda.get_rng_state(1), "cuda:1")
with torch.random.fork_rng(devices=[0, 1]):
    torch.rand(9)
assert torch.rand(3).equal(first)

side = cuda.Stream()
side.wait_stream(cuda.current_stream())
with cuda.stream(side):
    assert cuda.current_stream() is side
    moved = torch.ones(1).cuda(non_blocking=True)
with cuda.stream(None):
    pass
cuda.current_stream().wait_stream(side)
begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
begin.record()
until = time.perf_counter() + 0.01
while time.perf_counter() < until:
    pass
end.record()
end.synchronize()
assert begin.elapsed_time(end) >= 10.0 and side.query() and end.query()
cuda.nvtx.range_push("step"); cuda.nvtx.mark("here"); cuda.nvtx.range_pop()
with cuda.nvtx.range("step"):
    pass
cuda.profiler.start(); cuda.profiler.stop()
for graph in (cuda.CUDAGraph, lambda: cuda.graph(None), lambda: cuda.make_graphed_callables(1, 2)):
    with refuses(RuntimeError, "CUDA graphs need a GPU"):
        graph()
with torch.profiler.profile(
    activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA],
    acc_events=True,
) as profile:
    torch.ones(2).cuda()
profile.key_averages().table(sort_by="cuda_time_total")

# Checkpointed activations.
from torch.utils.checkpoint import checkpoint
layer = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).cuda()
x = torch.ones(3, 4, device="cuda", requires_grad=True)
with torch.autocast("cuda", dtype=torch.float16):
    checkpoint(layer, x, use_reentrant=False).sum().backward()
assert x.grad is not None
assert nn.DataParallel(layer).cuda()(x).shape == (3, 4)

# Compiled and scripted code.
def step(x, model):
    noise = torch.zeros(4, device="cuda") + torch.tensor([1.0], device=x.device)
    with torch.autocast("cuda", dtype=torch.float16):
        return model(x.to("cuda:1", non_blocking=True) + noise.cuda()).cpu().sum()

torch.manual_seed(0)
model = nn.Linear(4, 4).cuda()
# The default compiler's C++ takes too long here: it is tried by hand.
fast = torch.compile(step, fullgraph=True, backend="aot_eager")
assert torch.allclose(fast(x, model), step(x, model))
fast(x, model).backward()
torch.compile(nn.Linear(4, 4).cuda(), backend="aot_eager")(x).sum().backward()

with warnings.catch_warnings():
    warnings.simplefilter("ignore")

    @torch.jit.script
    def scripted(n: int):
        return torch.zeros([n], dtype=torch.float32) + torch.arange(n)

assert scripted(3).tolist() == [0, 1, 2]
"""


def test_torch_cuda_answers_as_on_a_machine_with_gpus(tmp_path: Path):
    run(tmp_path, CARDS)


RANKS = """
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.distributed_c10d import init_process_group

rank = int(os.environ["LOCAL_RANK"])
assert init_process_group is dist.init_process_group
torch.cuda.set_device(rank)
device = torch.device("cuda", rank)

for backend in ("cpu:gloo,cuda:nccl", None, "nccl"):
    options = dist.ProcessGroupNCCL.Options()
    if backend == "nccl":
        dist.init_process_group(backend, device_id=device, pg_options=options)
    else:
        store = f"file://{os.getcwd()}/store-{backend}"
        dist.init_process_group(backend, store, rank=rank, world_size=2, device_id=device)
        dist.barrier()
        dist.destroy_process_group()
assert fake_cuda.answered() == ["cuda", "nccl"]
dist.barrier(device_ids=[rank])
value = torch.ones(1, device=device) * rank
dist.all_reduce(value, op=dist.ReduceOp.AVG)
assert float(value) == 0.5
pair = dist.new_group([0, 1], backend="nccl")
work = dist.all_reduce(value, group=pair, async_op=True)
work.wait()
assert float(value) == 1.0
objects = ["from 0" if rank == 0 else None]
dist.broadcast_object_list(objects, src=0, device=device)
assert objects == ["from 0"]
mesh = dist.init_device_mesh("cuda", (2,), mesh_dim_names=("dp",))
assert mesh.device_type == "cpu" and mesh.size() == 2
with refuses(RuntimeError, "cuda:2"):
    torch.cuda.set_device(2)

def network(momentum):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, momentum=momentum), nn.ReLU(), nn.Flatten(),
        nn.Linear(3 * 4 * 4, 2), nn.BatchNorm1d(2, affine=False),
    ).double()

torch.manual_seed(1)
batch, target = torch.randn(10, 2, 6, 6).double(), torch.randn(10, 2).double()
for momentum in (0.1, None):
    alone = network(momentum)
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(network(momentum)).cuda(rank)
    model = DDP(synced, device_ids=[rank], output_device=rank)
    # Shares of different sizes: the mean over the ranks is not the mean of their means.
    own = slice(0, 4) if rank == 0 else slice(4, 10)
    for _ in range(2):
        (alone(batch) - target).square().sum().backward()
        # DDP takes the mean over the ranks, and the loss is a sum.
        (2 * (model(batch[own].to(device)) - target[own].to(device)).square().sum()).backward()
    for ours, theirs in zip(synced.parameters(), alone.parameters()):
        torch.testing.assert_close(ours.grad, theirs.grad)
    for ours, theirs in zip(synced.buffers(), alone.buffers()):
        torch.testing.assert_close(ours, theirs)
    model.eval(), alone.eval()
    torch.testing.assert_close(model(batch[own].to(device)), alone(batch)[own])
    copy.deepcopy(synced)
    pickle.dumps(synced)
assert fake_cuda.answered() == ["cuda", "nccl", "SyncBatchNorm"]
dist.destroy_process_group()
# With a DDP model alive, gloo's threads may abort or hang an interpreter that shuts down.
os._exit(0)
"""


def test_ranks_that_ask_for_nccl_talk_over_gloo(tmp_path: Path):
    run(tmp_path, RANKS, replicas=2)


SPAWNED = """
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, i):
        # A worker's process imports this script again, and stands in again.
        return torch.zeros(1, device="cuda:1") + i

if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(
        Numbers(), 2, num_workers=1, multiprocessing_context="spawn", pin_memory=True,
        generator=torch.Generator("cuda"),
    )
    assert [batch.cuda().flatten().tolist() for batch in loader] == [[0, 1]]
"""


def test_workers_that_are_spawned_stand_in_too(tmp_path: Path):
    run(tmp_path, SPAWNED)
