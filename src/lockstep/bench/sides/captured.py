"""A whole training step in one CUDA graph, captured by hand: nothing but a replay for each step."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from lockstep.bench.assignment import Task, shuffled

REHEARSALS = 3
"""Steps before the capture: the optimizer's state and the libraries' workspaces must exist."""


def train(task: Task, scored: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Capture a step that takes its samples from a static buffer of indices; replay it for ever."""
    work, device = task.work, task.device
    samples = task.samples.to(device)
    indices = torch.zeros(work.batch, dtype=torch.int64, device=device)

    def step() -> None:
        inputs, targets = samples.take(indices)
        # A weight cast to bf16 must not outlive the step: the replay casts it anew.
        bf16 = task.precision == "bf16"
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
        task.pace.step(work.batch)
