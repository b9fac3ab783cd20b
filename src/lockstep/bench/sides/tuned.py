"""A training loop that an expert writes by hand for one GPU.

The data live on the device and are indexed there. The loop uses bf16 autocast, channels_last, a
fused optimizer, and compiles model and loss together; tiny models put the whole step into one CUDA
graph instead. On the CPU nothing is compiled, so that tests can run this side there.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from lockstep.bench.assignment import Assignment, shuffled
from lockstep.bench.side import Side
from lockstep.bench.works import Work

REHEARSALS = 3
"""Steps before the capture: the optimizer's state and the libraries' workspaces must exist."""


class Scored(nn.Module):
    """A model and its loss: compiled together, the scores need not all be written to memory."""

    def __init__(self, model: nn.Module, work: Work) -> None:
        super().__init__()
        self.model, self.loss = model, work.loss

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of a batch."""
        return self.loss(self.model(inputs), targets)


def run(assignment: Assignment) -> None:
    """Build model and optimizer, then train."""
    assignment.set_up_torch()
    torch.manual_seed(0)
    work, device = assignment.work, assignment.device
    if assignment.on_gpu:
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    model = work.model().to(device)
    if work.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assignment.pace.begin(model)
    optimizer = work.optimizer(model.parameters(), lr=work.learning_rate, fused=True)
    scored = Scored(model, work)
    if work.capture and assignment.on_gpu:
        _replay(assignment, scored, optimizer)
        return
    forward = torch.compile(scored) if assignment.on_gpu else scored
    samples = assignment.samples.to(device)
    for indices in shuffled(len(samples), work.batch, device):
        inputs, targets = samples.take(indices)
        if work.channels_last:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16, enabled=assignment.precision == "bf16"):
            loss = forward(inputs, targets)
        loss.backward()
        if work.clip is not None:
            clip_grad_norm_(model.parameters(), work.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        assignment.pace.step(work.batch)


def _replay(assignment: Assignment, scored: Scored, optimizer: torch.optim.Optimizer) -> None:
    """Capture a step that takes its samples from a static buffer of indices; replay it forever."""
    work, device = assignment.work, assignment.device
    samples = assignment.samples.to(device)
    indices = torch.zeros(work.batch, dtype=torch.int64, device=device)

    def step() -> None:
        inputs, targets = samples.take(indices)
        # A weight cast to bf16 must not outlive the step: the replay casts it again.
        bf16 = assignment.precision == "bf16"
        with torch.autocast("cuda", torch.bfloat16, enabled=bf16, cache_enabled=False):
            loss = scored(inputs, targets)
        loss.backward()
        if work.clip is not None:
            clip_grad_norm_(scored.parameters(), work.clip)
        optimizer.step()

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(REHEARSALS):
            optimizer.zero_grad(set_to_none=True)
            step()
    torch.cuda.current_stream().wait_stream(aside)
    # Without gradients from before, backward writes them instead of adding to them.
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    for chosen in shuffled(len(samples), work.batch, device):
        indices.copy_(chosen)
        graph.replay()
        assignment.pace.step(work.batch)


SIDE = Side(
    name="tuned",
    sentence="what an expert writes by hand for one GPU",
    run=run,
    order=8,
    one_replica=True,
    on_cpu=False,
)
