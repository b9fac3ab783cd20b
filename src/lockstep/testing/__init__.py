"""Test that a training has the same result on any number of replicas.

    same_on    run a function or script on 1, 2, ... replicas, and compare
    NotSame    what a test fails with

`pip install lockstep` also gives pytest a fixture of the name `same_on`.
"""

from lockstep.testing.same import NotSame, SameOn, same_on

__all__ = ["NotSame", "SameOn", "same_on"]
