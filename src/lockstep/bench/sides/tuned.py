"""What an expert writes by hand for one GPU.

Data on the device and indexed there, bf16 autocast, channels_last, a fused optimizer, model and
loss compiled together; for tiny models the whole step in one CUDA graph instead. On the CPU the
same without compiling, so that it can be tested there.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from lockstep.bench.assignment import Task, shuffled
from lockstep.bench.sides import captured
from lockstep.bench.works import Work


class Scored(nn.Module):
    """A model and its loss: compiled together, the scores need not all be written to memory."""

    def __init__(self, model: nn.Module, work: Work) -> None:
        super().__init__()
        self.model, self.loss = model, work.loss

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of a batch."""
        return self.loss(self.model(inputs), targets)


def run(task: Task) -> None:
    """Build, then train."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    work, device = task.work, task.device
    if task.on_gpu:
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    if task.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    model = work.model().to(device)
    if work.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    task.pace.begin(model)
    optimizer = work.optimizer(model.parameters(), lr=work.learning_rate, fused=True)
    scored = Scored(model, work)
    if work.capture and task.on_gpu:
        captured.train(task, scored, optimizer)
        return
    forward = torch.compile(scored) if task.on_gpu else scored
    samples = task.samples.to(device)
    for indices in shuffled(len(samples), work.batch, device):
        inputs, targets = samples.take(indices)
        if work.channels_last:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16, enabled=task.precision == "bf16"):
            loss = forward(inputs, targets)
        loss.backward()
        if work.clip is not None:
            clip_grad_norm_(model.parameters(), work.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        task.pace.step(work.batch)
