"""Train a recipe from a program, once for each seed, and load the better weights.

python examples/two_seeds.py                              # one replica, forked from this program
torchrun --nproc-per-node 2 examples/two_seeds.py         # two replicas: the same bits
"""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import lockstep

SMALL = partial(lockstep.models.wideresnet, depth=10, width=1, channels=1)


def main(out: Path) -> None:
    """Train two epochs with each seed and show what came out."""
    recipe = replace(lockstep.recipes.DIGITS, model=SMALL, global_batch=128)
    runs = [
        lockstep.train(
            recipe, exact=True, device="cpu", seed=seed, epochs=2, out=out / str(seed), quiet=True
        )
        for seed in (0, 1)
    ]
    best = max(runs, key=lambda run: run.metrics["accuracy"])
    model = best.load_weights(SMALL())
    weights = sum(parameter.numel() for parameter in model.parameters())
    hashes = " ".join(run.weights_sha256[:8] for run in runs)
    sys.stdout.write(
        f"{best.replicas} replica(s): accuracy {best.metrics['accuracy']:.4f} with {weights:,} "
        f"weights; {hashes}\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/two-seeds"))
