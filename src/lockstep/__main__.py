"""`python -m lockstep`, which torchrun can start too: torchrun ... -m lockstep train digits."""

from lockstep.cli import main

main()
