"""Prove that a converted script trains as the original does, step by step, on any number of ranks.

The original runs on one process, the result on 1, 2 and 4, all on the CPU. The probes in
`in_process` make the order of samples and random numbers the same in all runs; then every loss and
every weight must agree, up to what rounding explains.

    verdict             the outcome of a proof
    runs                runs a script in a scratch folder, and reads its notes
    rounding_bounds     measures what rounding explains
    printed_lines       compares what two runs printed
    comparison          compares two runs, and finds out why they differ
    proof               makes all runs, and reaches the verdict

A module imports only from those above it.
"""

from lockstep.convert.verify.proof import verify
from lockstep.convert.verify.verdict import Comparison, Difference, Verdict

__all__ = ["Comparison", "Difference", "Verdict", "verify"]
