"""Lightning Trainer: the library owns the loop.

In its favour, everything beside the training is off: logger, checkpoints, progress bar, summary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lockstep.bench.assignment import Assignment, Batch
from lockstep.bench.side import Side


def run(assignment: Assignment) -> None:
    """Fit until the pace ends the run."""
    try:
        from lightning.pytorch import LightningModule, Trainer
    except ModuleNotFoundError:
        from pytorch_lightning import LightningModule, Trainer

    class Trained(LightningModule):
        """The work as a LightningModule."""

        def __init__(self) -> None:
            super().__init__()
            self.model = work.model()

        def training_step(self, batch: Batch, number: int) -> Tensor:
            """Return the loss of a batch."""
            inputs, targets = batch
            return work.loss(self.model(inputs), targets)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            """Return the work's optimizer."""
            return work.optimizer(self.model.parameters(), lr=work.learning_rate)

        def on_train_batch_end(self, outputs: Any, batch: Batch, number: int) -> None:
            """Report a step to the pace."""
            assignment.pace.step(len(batch[0]))

    work = assignment.work
    if not assignment.alone:
        assignment.announce()
    assignment.set_up_torch()
    trainer = Trainer(
        accelerator="cuda" if assignment.on_gpu else "cpu",
        devices=assignment.world.size,
        strategy="auto" if assignment.alone else "ddp",
        precision="bf16-mixed" if assignment.precision == "bf16" else "32-true",
        gradient_clip_val=work.clip,
        max_epochs=-1,
        default_root_dir=assignment.folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    torch.manual_seed(0)
    module = Trained()
    assignment.pace.begin(module.model)
    trainer.fit(module, assignment.loader())


SIDE = Side(
    name="trainer",
    sentence="Lightning Trainer",
    run=run,
    order=6,
    needs=("lightning", "pytorch_lightning"),
)
