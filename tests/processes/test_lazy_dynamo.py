"""A stand-in answers for torch's compiler in eager training, and makes way for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.processes.forked import start_forked
from lockstep.world import elsewhere

START = """
import sys
import torch
def is_put_off():
    return type(sys.modules["torch._dynamo"]).__name__ == "_StandIn"
net = torch.nn.Linear(3, 3)
optimizer = torch.optim.AdamW(net.parameters())
def step(model=net):
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
step()
assert is_put_off()
"""

EAGER = {
    "state of an optimizer": "optimizer.load_state_dict(optimizer.state_dict())",
    "a schedule": "torch.optim.lr_scheduler.StepLR(optimizer, 1).step()",
    "DDP": """
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
step(torch.nn.parallel.DistributedDataParallel(net))
""",
    "names that torchvision imports": "from torch._dynamo.utils import is_compile_supported",
    "is_compiling": "assert not torch.compiler.is_compiling()",
    "deterministic kernels": """
from lockstep.processes.lazy_dynamo import use_deterministic_algorithms
use_deterministic_algorithms()
assert torch.are_deterministic_algorithms_enabled()
step()
""",
}
COMPILER = {
    "torch.compile": """
before = [p.detach().clone() for p in net.parameters()]
compiled = torch.compile(step, backend="eager")
compiled()
assert not any(torch.equal(a, b) for a, b in zip(before, net.parameters()))
""",
    "a module of settings": """
import torch._dynamo.config as config
from torch._dynamo import eval_frame
assert config is torch._dynamo.config is eval_frame.config
assert config.__spec__.name == "torch._dynamo.config"
""",
    "a module inside a package": """
from torch._dynamo.backends.registry import lookup_backend
import torch._dynamo.backends.registry as registry
assert registry is torch._dynamo.backends.registry
assert registry.lookup_backend is lookup_backend
""",
    "what torchvision calls": """
from torch._dynamo.utils import is_compile_supported
assert is_compile_supported("cpu") in (True, False)
import torch._dynamo.utils as utils
assert utils is torch._dynamo.utils is not is_compile_supported.__closure__[0].cell_contents.utils
""",
    "an attribute": "assert torch._dynamo.OptimizedModule",
    "a compiler that must be deterministic": """
from lockstep.processes.lazy_dynamo import use_deterministic_algorithms
use_deterministic_algorithms()
import torch._inductor.config
assert torch._inductor.config.deterministic
torch.compile(step, backend="eager")()
use_deterministic_algorithms()
""",
    "torch.compiler.disable": "assert torch.compiler.disable(lambda: 3)() == 3",
    "DDP's other mode": """
torch._dynamo.config.optimize_ddp = False
assert torch._dynamo.utils.get_optimize_ddp_mode() == "no_optimization"
""",
}


def run(folder: Path, text: str) -> None:
    """Run code in a fork of a server, which has put off the compiler."""
    script = folder / "script.py"
    script.write_text(START + text)
    with (folder / "log").open("w+b") as log:
        code = start_forked([str(script)], env=elsewhere(), output=log, cwd=folder).wait(60)
        log.seek(0)
        assert code == 0, log.read().decode()


@pytest.mark.parametrize("use", EAGER)
def test_eager_training_does_not_import_the_compiler(use: str, tmp_path: Path) -> None:
    run(tmp_path, f"{EAGER[use]}\nassert is_put_off()")


@pytest.mark.parametrize("use", COMPILER)
def test_the_compiler_is_imported_when_it_is_needed(use: str, tmp_path: Path) -> None:
    run(tmp_path, f"{COMPILER[use]}\nassert not is_put_off()\nstep()")


def test_activation_checkpointing_works(tmp_path: Path) -> None:
    # Some versions of torch ask the compiler for a setting, others do not.
    checkpoint = "torch.utils.checkpoint.checkpoint"
    given = "net, torch.ones(2, 3, requires_grad=True), use_reentrant=False"
    code = f"import torch.utils.checkpoint\n{checkpoint}({given}).sum().backward()\nstep()"
    run(tmp_path, code)


def test_a_compiler_that_is_imported_already_stays(tmp_path: Path) -> None:
    again = "from lockstep.processes.lazy_dynamo import put_off_dynamo as again"
    run(tmp_path, f"torch._dynamo.config\n{again}\nagain()\nassert not is_put_off()")
