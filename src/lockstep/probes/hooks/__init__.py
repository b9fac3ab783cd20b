"""Hook into torch, one file for each part of it: loaders, optimizers, DDP, collectives, files.

To be called at a batch, a backward pass or a step, add a callback to the Recorder.
"""
