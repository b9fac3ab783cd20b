"""The Trainer of transformers; --whole leaves the batch of one replica undivided."""

import argparse
import os

import torch
from torch import nn
from transformers import Trainer, TrainingArguments, set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--whole", action="store_true")
whole = parser.parse_args().whole
size = int(os.environ.get("WORLD_SIZE", "1"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 3)

    def forward(self, x, labels):
        scores = self.net(x)
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


set_seed(0)
data = [{"x": torch.randn(6), "labels": n % 3} for n in range(64)]
arguments = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=16 if whole else 16 // size,
    num_train_epochs=2,
    learning_rate=1e-2,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
)
Trainer(model=Net(), args=arguments, train_dataset=data).train()
