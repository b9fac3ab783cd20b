"""Lab 2: turn a program for one GPU into one for many, and see what DDP does.

    files                 the program for one GPU, a page for each step, and the digits
    diff                  two programs, line by line
    run_program           runs a program on one or two processes, and reads what it prints
    device_probe          records the GPU that a rank sends its model to
    observe               runs a program on two ranks under the doctor
    requirements          requirements of the steps that no rule of the doctor covers
    steps                 the steps
    tasks                 the steps as tasks of the page, and what is missing in a step
    buckets               records backward passes, bucket by bucket
    bucket_pictures       draws them, and one gradient before and after the all-reduce
    validation            an accuracy from the parts of several ranks
    converter_comparison  runs the learner's program and the converter's
    proof                 compares the learner's program with that for one GPU, step by step
    quiz                  questions about the measurements

A module imports only from those above it.
"""

from __future__ import annotations

from lockstep.labs.shared.catalogue import Lab

LAB = Lab(
    folder=__path__[0],
    title="Distributed data parallel",
    question="How do you turn a program for one GPU into one for many, with the same result?",
    tasks=("program",),
)
