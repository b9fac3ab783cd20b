"""Every rank writes the same file."""

FAILS = {"saving": "epoch-1.pt is written by ranks 0, 1"}
CHANGES = {"            torch.save(": "        torch.save("}
