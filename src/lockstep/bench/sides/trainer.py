"""Lightning Trainer: the loop is the library's.

In its favour, everything beside the training is off: logger, checkpoints, progress bar, summary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lockstep.bench.assignment import Batch, Task

try:
    from lightning.pytorch import LightningModule, Trainer
except ModuleNotFoundError:
    from pytorch_lightning import LightningModule, Trainer


class Trained(LightningModule):
    """The work as a LightningModule."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task
        self.model = task.work.model()

    def training_step(self, batch: Batch, number: int) -> Tensor:
        """The loss of a batch."""
        inputs, targets = batch
        return self.task.work.loss(self.model(inputs), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimizer of the work."""
        work = self.task.work
        return work.optimizer(self.model.parameters(), lr=work.learning_rate)

    def on_train_batch_end(self, outputs: Any, batch: Batch, number: int) -> None:
        """A step is done."""
        self.task.pace.step(len(batch[0]))


def run(task: Task) -> None:
    """Fit, for ever."""
    if not task.alone:
        task.announce()
    torch.set_num_threads(1)
    if task.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    trainer = Trainer(
        accelerator="cuda" if task.on_gpu else "cpu",
        devices=task.world.size,
        strategy="auto" if task.alone else "ddp",
        precision="bf16-mixed" if task.precision == "bf16" else "32-true",
        gradient_clip_val=task.work.clip,
        max_epochs=-1,
        default_root_dir=task.folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    torch.manual_seed(0)
    module = Trained(task)
    task.pace.begin(module.model)
    trainer.fit(module, task.loader())
