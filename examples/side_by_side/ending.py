"""Print the result of a program as one line of JSON, and save its weights with `--save PATH`.

Both belong to the comparison, not to the training: lockstep writes them by itself.
"""

import argparse
import hashlib
import json
import math
import sys
from pathlib import Path

import torch
from torch import distributed, nn


def finish(loss: float, *models: nn.Module, **metrics: float) -> None:
    """Report the loss, the metrics, and the weights of all models, on the first process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    together = distributed.is_initialized()
    if not together or distributed.get_rank() == 0:
        weights = {
            f"{number}.{name}": tensor.detach().cpu().contiguous()
            for number, model in enumerate(models)
            for name, tensor in model.state_dict().items()
        }
        content = b"".join(weights[name].numpy().tobytes() for name in sorted(weights))
        floats = [tensor.double() for tensor in weights.values() if tensor.is_floating_point()]
        result = {"loss": loss, "weights": hashlib.sha256(content).hexdigest()}
        result["norm"] = math.sqrt(sum(tensor.square().sum().item() for tensor in floats))
        sys.stdout.write(json.dumps({**result, **metrics}) + "\n")
        if given.save:
            torch.save(weights, given.save)
    if together:
        # No process ends before the first one has saved the weights.
        distributed.barrier()
