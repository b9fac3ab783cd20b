"""Lab 2: a program for one GPU becomes one for many, and what DDP does in it.

    texts      the program for one GPU, and a page for each step
    data       the digits that programs read
    apart      a function in a process of its own, with a time limit
    diff       two programs, line by line
    lines      what programs print
    observe    a program on two ranks, as the doctor sees it
    probe      set in these ranks: the GPU that a model is sent to
    needs      what steps ask for that no rule of the doctor's does
    steps      the steps
    check      whether a step is done, in words
    tasks      steps as tasks of the page
    buckets    a recorded backward pass, bucket by bucket
    picture    figures of it
    exchange   one gradient, before and after the all-reduce
    parts      an accuracy from the parts of several ranks
    programs   a program on one process or two, as it is
    against    the learner's program and the converter's, run
    proof      whether it computes what the program for one GPU does
    questions  about what was measured

A module imports only from those above it.
"""

from __future__ import annotations

from lockstep.labs.shared.catalogue import Lab

LAB = Lab(
    folder=__path__[0],
    title="Distributed data parallel",
    question="How does a program for one GPU become one for many, with the same result?",
    tasks=("program",),
)
