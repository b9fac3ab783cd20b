"""Every rank writes the same file."""

FAILS = {"saving": "ranks 0, 1 write epoch-1.pt"}
CHANGES = {"            torch.save(": "        torch.save("}
