"""Proves that a converted script trains as the original does, step by step, on any number of ranks.

The original is run on one process, the result on 1, 2 and 4, all on the CPU. What may differ by
nature, the order of samples and random numbers, is made the same (`inside`); then every loss and
every weight must agree, up to what rounding explains.

    verdict    what is said in the end
    scratch    a folder in which a script finds its files and changes none of the user's
    runs       one run of a script, and what it noted
    bounds     what rounding explains, measured
    printed    what two runs printed
    reasons    why they differ
    compare    two runs, step by step
    proof      all runs, and the verdict

A module imports only from those above it.
"""

from lockstep.convert.verify.proof import verify
from lockstep.convert.verify.verdict import Comparison, Difference, Verdict

__all__ = ["Comparison", "Difference", "Verdict", "verify"]
