"""Each rank shuffles with a seed of its own before it takes its part."""

FAILS = {"samples": "samples were left out"}
CHANGES = {"shuffle=True, seed=args.seed)": "shuffle=True, seed=args.seed + rank)"}
