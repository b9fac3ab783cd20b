"""The sampler is not told the epoch, and shuffles as in the first one forever."""

FAILS = {"order": "same order in epochs 1 and 2"}
CHANGES = {"        sampler.set_epoch(epoch)\n": ""}
