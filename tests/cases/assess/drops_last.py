"""The last batch of each epoch is dropped."""

FAILS = {"samples": "samples were left out and 0 came"}
CHANGES = {"BATCH // world, sampler=sampler": "BATCH // world, sampler=sampler, drop_last=True"}
