"""Each rank goes over all samples: the loader has no sampler."""

FAILS = {"samples": "each of the 2 ranks went over all"}
CHANGES = {"BATCH // world, sampler=sampler": "BATCH // world, shuffle=True"}
