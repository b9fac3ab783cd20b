"""One file per side, written as the users of its library would write it.

`lockstep.bench.entries` finds every file here and reads its `SIDE`.
"""
