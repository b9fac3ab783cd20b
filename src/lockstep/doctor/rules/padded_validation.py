"""Padded validation: the sampler repeats samples to fill its last round; they count twice."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.loaders import Loader
from lockstep.source.loop_metrics import Tally, tallies
from lockstep.source.script import Origin
from lockstep.source.training import Training
from lockstep.source.tree import argument, constant

_METRIC = re.compile(
    r"correct|acc|hit|right|top_?\d|pred|prob|logit|output|score|(^|_)[tf][pn](_|$)|confusion|"
    r"error|f1|iou|dice|recall|precision",
    re.I,
)
ONCE = re.compile(
    r"dedup|duplicat|unique|in seen|seen\.|trunc|padd(ed|ing)(?!=)|remainder|\bset\(|"
    r"\[\s*:\s*(len\(|[\w.]*(len|num|size|total|count|n_))|%\s*[\w.]*(world|replicas|nprocs)",
    re.I,
)
"""Code that removes duplicate samples."""
_EVEN = {"MNIST", "FashionMNIST", "KMNIST", "CIFAR10", "CIFAR100", "ImageNet", "SVHN", "STL10"}
"""Test sets of torchvision whose size is divisible by 2, 4 and 8 ranks."""


def look(training: Training) -> Iterator[Found]:
    """Find metrics over all ranks whose DistributedSampler may repeat samples."""
    for loader in training.loaders:
        samplers, _ = loader.split_by()
        if not samplers or not loader.evaluates or _divides(training, loader):
            continue
        if not any(_counts_twice(tally) for tally in tallies(training, loader)):
            continue
        for origin in samplers:
            if origin.call is not None and argument(origin.call, "drop_last", 5) is None:
                yield Found(
                    origin.script,
                    origin.call,
                    "this sampler repeats samples until all ranks have the same number, and the "
                    "metric counts them twice",
                    certain=False,
                )


def _counts_twice(tally: Tally) -> bool:
    """Return whether a metric other than a loss is reduced without removing duplicates."""
    if not tally.reduced or not tally.known or not any(map(_METRIC.search, tally.names)):
        return False
    return not any(ONCE.search(script.code(node)) for script, node in tally.functions)


def _divides(training: Training, loader: Loader) -> bool:
    """Return whether the size of the data set is known to be divisible by 8."""
    if loader.given("dataset") is None:
        return True
    function = loader.script.function_of(loader.call) or loader.script.tree
    if ONCE.search(loader.script.code(function)):
        return True
    return any(_is_even(training, o) for o in loader.origins("dataset"))


def _is_even(training: Training, origin: Origin) -> bool:
    if origin.call is None or not origin.call.args:
        return False
    name = training.project.name(origin.script, origin.call.func) or ""
    if name.rsplit(".", 1)[-1] in _EVEN:
        return True
    # TensorDataset(torch.randn(1000, 784), ...)
    for inner in training.project.origins(origin.script, origin.call.args[0].value):
        if isinstance(inner.node, cst.Call) and name.endswith("TensorDataset") and inner.node.args:
            size = constant(inner.node.args[0].value)
            return isinstance(size, int) and size % 8 == 0
    return False
