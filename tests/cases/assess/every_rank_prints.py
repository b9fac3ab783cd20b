"""Every rank prints the accuracy."""

FAILS = {"validation": "printed 2 times, by ranks 0, 1"}
CHANGES = {
    "        if rank == 0:\n            print(": "        print(",
    "            torch.save(": "        if rank == 0:\n            torch.save(",
}
