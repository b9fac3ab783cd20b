"""An optimizer by name, loaders in a dict, an endless loader, and loops of another file."""
import argparse

import torch

from loops import evaluate, fit
from parts import *


def main():
    import json

    parser = argparse.ArgumentParser()
    parser.add_argument("--optim", default="Adam")
    parser.add_argument("--iterations", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    loaders = make_loaders()
    model = Model()
    optimizer = getattr(torch.optim, args.optim)(trained_parameters(model), lr=0.01)
    fit(model, optimizer, loaders["train"], args.iterations)
    print(json.dumps({"right": evaluate(model, loaders["test"])}))
    finish()


def finish():
    print("done")


if __name__ == "__main__":
    main()
